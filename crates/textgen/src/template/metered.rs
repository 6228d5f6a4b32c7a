//! Operators, filters, methods and functions of templates. Each counts its work and memory before it runs.

use std::sync::Arc;

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, escape_formatter, filters, functions};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::functions::{strftime_now, to_json};
use super::meter::{ELEMENT, Meter, VISIT, WRITTEN, bytes};
use super::rewrite::{ADD, BUILT, CONCATENATE, MULTIPLY, READ, SCAN};

/// The maximum number of engine steps, so that a template cannot loop for ever.
pub(super) const FUEL: u64 = 10_000_000;

/// The maximum number of comparisons per element in a sort.
const SORTED: u64 = 32;

/// Bytes that pretty printing adds per element, before and after it.
const PRETTY: u64 = 64;

/// The template engine with metered operations.
pub(super) fn environment(meter: &Arc<Meter>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    // In debug builds, errors would contain all variables of the template.
    environment.set_debug(false);
    add_operators(&mut environment, meter);
    add_filters(&mut environment, meter);
    add_functions(&mut environment, meter);
    let own = Arc::clone(meter);
    environment.set_unknown_method_callback(move |state, value, method, args| {
        let mut all = vec![value.clone()];
        all.extend_from_slice(args);
        pay(&own, method, &all)?;
        own.built(unknown_method_callback(state, value, method, args)?)
    });
    let own = Arc::clone(meter);
    environment.set_formatter(move |output, state, value| {
        let is_plain = value.as_str().is_some() && matches!(state.auto_escape(), AutoEscape::None);
        let size = own.weigh(value)?;
        own.memory(if is_plain { size } else { size.saturating_mul(WRITTEN) })?;
        escape_formatter(output, state, value)
    });
    environment
}

fn add_operators(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    let own = Arc::clone(meter);
    environment.add_function(ADD, move |left: Value, right: Value| add(&own, &left, &right));
    let own = Arc::clone(meter);
    environment.add_function(MULTIPLY, move |left: Value, right: Value| multiply(&own, &left, &right));
    let own = Arc::clone(meter);
    environment.add_function(CONCATENATE, move |left: Value, right: Value| -> Result<Value, Error> {
        for side in [&left, &right] {
            let size = own.weigh(side)?;
            own.memory(if side.as_str().is_some() { size } else { size.saturating_mul(WRITTEN) })?;
        }
        Ok(Value::from(format!("{left}{right}")))
    });
    let own = Arc::clone(meter);
    environment.add_function(READ, move |value: Value| own.weigh(&value).map(|_| value));
    let own = Arc::clone(meter);
    environment.add_function(SCAN, move |value: Value| own.scan(&value).map(|_| value));
    let own = Arc::clone(meter);
    environment.add_function(BUILT, move |value: Value| own.built(value));
}

fn add(meter: &Meter, left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(start), Some(end)) = (left.as_str(), right.as_str()) {
        meter.work(bytes(left) + bytes(right))?;
        meter.memory(bytes(left) + bytes(right))?;
        return Ok(Value::from([start, end].concat()));
    }
    if is_list(left) && is_list(right) && left.is_tuple() == right.is_tuple() {
        return repeated(meter, &[left, right], 1, left.is_tuple());
    }
    number("+", left, right, i128::checked_add, |left, right| left + right)
}

fn multiply(meter: &Meter, left: &Value, right: &Value) -> Result<Value, Error> {
    let repeatable = |value: &Value| value.as_str().is_some() || is_list(value);
    let (value, times) = if repeatable(left) { (left, right) } else { (right, left) };
    if !repeatable(value) {
        return number("*", left, right, i128::checked_mul, |left, right| left * right);
    }
    let times = times.as_usize().ok_or_else(|| unsupported("*", left, right))?;
    match value.as_str() {
        Some(text) => {
            let size = bytes(value).saturating_mul(times as u64);
            meter.work(size)?;
            meter.memory(size)?;
            Ok(Value::from(text.repeat(times)))
        }
        None => repeated(meter, &[value], times, value.is_tuple()),
    }
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// Concatenates the elements of lists, and repeats the result `times` times.
fn repeated(meter: &Meter, lists: &[&Value], times: usize, tuple: bool) -> Result<Value, Error> {
    let mut elements = Vec::new();
    for _ in 0..times {
        // Empty lists take time too.
        meter.work(VISIT)?;
        for list in lists {
            for element in list.try_iter()?.checked() {
                meter.work(VISIT)?;
                meter.memory(ELEMENT)?;
                elements.push(element?);
            }
        }
    }
    meter.built(if tuple { Value::from(Tuple::from(elements)) } else { Value::from(elements) })
}

fn number(
    operator: &str,
    left: &Value,
    right: &Value,
    whole: fn(i128, i128) -> Option<i128>,
    real: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    let is_number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    if !is_number(left) || !is_number(right) {
        return Err(unsupported(operator, left, right));
    }
    let is_whole = |value: &Value| value.kind() == ValueKind::Bool || value.is_integer();
    if is_whole(left) && is_whole(right) {
        let result = whole(i128::try_from(left.clone())?, i128::try_from(right.clone())?);
        let result = result.ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, format!("unable to calculate {left} {operator} {right}"))
        })?;
        return Ok(i64::try_from(result).map_or_else(|_| Value::from(result), Value::from));
    }
    let float = |value: &Value| match i128::try_from(value.clone()) {
        Ok(number) if is_whole(value) => Ok(number as f64),
        _ => f64::try_from(value.clone()),
    };
    Ok(Value::from(real(float(left)?, float(right)?)))
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Error {
    let kinds = format!("unsupported types {} and {}", left.kind(), right.kind());
    Error::new(ErrorKind::InvalidOperation, format!("tried to use {operator} operator on {kinds}"))
}

fn add_filters(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    macro_rules! metered {
        ($($name:literal => $filter:path,)*) => {
            [$(($name, Value::from_function($filter)),)*]
        };
    }
    let all = metered! {
        "safe" => filters::safe, "escape" => filters::escape, "e" => filters::escape, "lower" => filters::lower,
        "upper" => filters::upper, "title" => filters::title, "capitalize" => filters::capitalize,
        "replace" => filters::replace, "length" => filters::length, "count" => filters::length,
        "dictsort" => filters::dictsort, "items" => filters::items, "reverse" => filters::reverse,
        "trim" => filters::trim, "join" => filters::join, "split" => filters::split, "lines" => filters::lines,
        "default" => filters::default, "d" => filters::default, "round" => filters::round, "abs" => filters::abs,
        "int" => filters::int, "float" => filters::float, "attr" => filters::attr, "first" => filters::first,
        "last" => filters::last, "min" => filters::min, "max" => filters::max, "sort" => filters::sort,
        "list" => filters::list, "string" => filters::string, "bool" => filters::bool, "batch" => filters::batch,
        "slice" => filters::slice, "sum" => filters::sum, "indent" => filters::indent, "select" => filters::select,
        "reject" => filters::reject, "selectattr" => filters::selectattr, "rejectattr" => filters::rejectattr,
        "map" => filters::map, "groupby" => filters::groupby, "unique" => filters::unique, "chain" => filters::chain,
        "zip" => filters::zip, "pprint" => filters::pprint, "format" => filters::format,
    };
    for (name, filter) in all {
        let own = Arc::clone(meter);
        let metered = move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let args = args.into_values();
            pay(&own, name, &args)?;
            own.built(filter.call(state, &args)?)
        };
        environment.add_filter(name, metered);
    }
    let own = Arc::clone(meter);
    environment.add_filter("tojson", move |value: Value, options: Kwargs| to_json(&own, &value, &options));
}

fn add_functions(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    // It would print all variables of the template, any number of times.
    environment.remove_global("debug");
    for (name, function) in
        [("dict", Value::from_function(functions::dict)), ("namespace", Value::from_function(functions::namespace))]
    {
        let own = Arc::clone(meter);
        let metered = move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let args = args.into_values();
            for value in args.iter() {
                own.memory(ELEMENT.saturating_mul(own.scan(value)?))?;
            }
            own.built(function.call(state, &args)?)
        };
        environment.add_function(name, metered);
    }
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", strftime_now);
}

/// Counts the cost of a filter or method; `args` starts with the value.
fn pay(meter: &Meter, name: &str, args: &[Value]) -> Result<(), Error> {
    let Some((value, rest)) = args.split_first() else { return Ok(()) };
    let text = value.as_str().unwrap_or_default();
    match name {
        "default" | "d" | "abs" | "round" | "bool" => Ok(()),
        // Keys are hashed.
        "attr" | "get" => rest.first().map_or(Ok(()), |key| meter.weigh(key).map(drop)),
        "first" | "last" | "length" | "items" | "keys" | "values" | "list" | "reverse" | "map" | "zip" | "chain" => {
            let lengths = args.iter().map(|value| meter.scan(value));
            let length = lengths.sum::<Result<u64, Error>>()?;
            meter.memory(length.saturating_mul(ELEMENT))
        }
        "count" if rest.is_empty() => meter.scan(value).map(drop),
        "select" | "reject" | "selectattr" | "rejectattr" => choose(meter, name, value, rest),
        "batch" | "slice" => {
            let count = rest.first().and_then(Value::as_usize).unwrap_or(0) as u64;
            meter.memory(count.saturating_add(meter.scan(value)?).saturating_mul(ELEMENT))
        }
        "replace" => {
            let part = |at: usize| rest.get(at).and_then(Value::as_str).unwrap_or_default();
            weigh_all(meter, args)?;
            let found = text.matches(part(0)).count();
            meter.memory((text.len() as u64).saturating_add((found as u64).saturating_mul(part(1).len() as u64)))
        }
        "indent" => {
            let option = || rest.last().filter(|last| last.is_kwargs()).and_then(|last| last.get_attr("width").ok());
            let width = rest.first().and_then(Value::as_usize).or_else(|| option()?.as_usize()).unwrap_or(4);
            let lines = 1 + text.matches('\n').count() as u64;
            meter.memory(meter.weigh(value)?.saturating_add((lines + 1).saturating_mul(width as u64)))
        }
        "join" => join(meter, value, rest),
        "format" => format(meter, text, args),
        "split" | "lines" | "splitlines" => {
            let parts = match rest.first().and_then(Value::as_str) {
                Some(separator) if !separator.is_empty() => text.matches(separator).count(),
                _ => text.matches(char::is_whitespace).count(),
            };
            meter.memory(weigh_all(meter, args)?.saturating_add((parts as u64 + 1) * ELEMENT))
        }
        "sort" | "dictsort" | "unique" | "groupby" | "min" | "max" => {
            let size = weigh_all(meter, args)?;
            meter.work(size.saturating_mul(SORTED))?;
            meter.memory(size)
        }
        "sum" => {
            let size = weigh_all(meter, args)?.saturating_mul(1 + value.len().unwrap_or(0) as u64);
            meter.work(size)?;
            meter.memory(size)
        }
        "pprint" => meter.memory(weigh_all(meter, args)?.saturating_mul(PRETTY)),
        "trim" | "strip" | "lstrip" | "rstrip" => meter.memory(weigh_all(meter, args)?),
        _ => meter.memory(weigh_all(meter, args)?.saturating_mul(WRITTEN)),
    }
}

fn weigh_all(meter: &Meter, values: &[Value]) -> Result<u64, Error> {
    values.iter().try_fold(0u64, |size, value| Ok(size.saturating_add(meter.weigh(value)?)))
}

/// `select`, `reject` and their variants.
fn choose(meter: &Meter, name: &str, value: &Value, rest: &[Value]) -> Result<(), Error> {
    /// These read no more of an element than the size of the value that it is compared with.
    const EQUAL: [&str; 9] = ["eq", "equalto", "==", "ne", "!=", "defined", "undefined", "none", "in"];
    let test = rest.get(usize::from(name.ends_with("attr"))).and_then(Value::as_str);
    if !test.is_none_or(|test| EQUAL.contains(&test)) {
        meter.weigh(value)?;
    }
    let length = meter.scan(value)?;
    meter.memory(length.saturating_mul(ELEMENT))?;
    meter.work(length.saturating_mul(weigh_all(meter, rest)?))
}

/// `list | join(separator)` and `separator.join(list)`.
fn join(meter: &Meter, value: &Value, rest: &[Value]) -> Result<(), Error> {
    let is_method = value.as_str().is_some() && rest.first().is_some_and(is_list);
    let (list, rest) = if is_method { (&rest[0], std::slice::from_ref(value)) } else { (value, rest) };
    let count = list.len().unwrap_or(0).max(list.as_str().map_or(0, str::len)) as u64;
    let separators = count.saturating_mul(weigh_all(meter, rest)?);
    let is_text = |element: &Value| element.as_str().is_some();
    let texts = list.try_iter().is_ok_and(|mut elements| elements.all(|element| is_text(&element)));
    let size = meter.weigh(list)?;
    meter.memory(separators.saturating_add(if texts { size } else { size.saturating_mul(WRITTEN) }))
}

/// `"%5d" | format(7)` and `"{:5}".format(7)`: widths and precisions are numbers in the text, or arguments.
fn format(meter: &Meter, text: &str, args: &[Value]) -> Result<(), Error> {
    let mut digits = text.split(|letter: char| !letter.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widths = digits.try_fold(0u64, |sum, digits| sum.checked_add(digits.parse().ok()?)).unwrap_or(u64::MAX);
    if has_nested_field(text) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a width cannot be a field: write the number"));
    }
    let star = if text.contains('*') { args.iter().filter_map(Value::as_usize).max() } else { None };
    let size = weigh_all(meter, args)?.saturating_mul(WRITTEN).saturating_add(star.unwrap_or(0) as u64);
    let places = 1 + text.matches(['%', '{']).count() as u64;
    meter.memory(widths.saturating_mul(WRITTEN).saturating_add(places.saturating_mul(size)))
}

/// Whether a field is nested in another one, as in `{:{}}`; `{{` is an escaped brace.
fn has_nested_field(text: &str) -> bool {
    let mut is_open = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '{' if is_open => return true,
            '{' => is_open = letters.next_if_eq(&'{').is_none(),
            '}' => is_open = false,
            _ => {}
        }
    }
    false
}
