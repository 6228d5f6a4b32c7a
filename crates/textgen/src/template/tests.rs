use super::render as render_text;
use super::*;

fn render(text: &str, messages: &[Message]) -> Result<String> {
    let tokens = SpecialTokens { bos_token: "<s>".into(), ..SpecialTokens::default() };
    ChatTemplate::new(text.to_owned(), PathBuf::from("t"), tokens)?.render(messages, true)
}

#[test]
fn messages_become_a_prompt() {
    let text = "{{ bos_token }}{% for m in messages %}\n<{{ m['role'] }}>{{ m.content.strip() }}\n{% endfor %}\n\
                {%- if add_generation_prompt %}<assistant>{% endif %}";
    let messages = [Message::new("user", " hi "), Message::new("assistant", "yes")];
    assert_eq!(render(text, &messages).unwrap(), "<s><user>hi\n<assistant>yes\n<assistant>");
}

#[test]
fn messages_may_have_more_fields() {
    let text =
        "{% for m in messages %}{{ m.role }}:{% for call in m.tool_calls %}{{ call.name }}{% endfor %};{% endfor %}";
    let template = ChatTemplate::from_text(text, Path::new("t")).unwrap();
    let messages = [serde_json::json!({"role": "a", "tool_calls": [{"name": "f"}]}), serde_json::json!({"role": "b"})];
    assert_eq!(template.render_values(&messages, &Json::Null, false).unwrap(), "a:f;b:;");
}

#[test]
fn a_template_can_refuse() {
    let error = render("{{ raise_exception('only users may speak') }}", &[]).unwrap_err().to_string();
    assert!(error.contains("only users may speak") && error.contains("help:"), "{error}");
    assert!(render("{% for %}", &[]).is_err());
}

#[test]
fn an_endless_template_is_stopped() {
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
    let error = render(endless, &[]).unwrap_err().to_string();
    assert!(error.contains("exceeded a limit") && error.contains("steps"), "{error}");
}

#[test]
fn json_is_written_as_python_does() {
    assert_eq!(render("{{ {'a': [1, 'é']} | tojson }}", &[]).unwrap(), "{\"a\": [1, \"é\"]}");
    assert_eq!(render("{{ [1] | tojson(indent=2) }}", &[]).unwrap(), "[\n  1\n]");
}

#[test]
fn the_default_of_named_templates_is_used() {
    let list = serde_json::json!([{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]);
    assert_eq!(default_template(&list).as_deref(), Some("d"));
    assert_eq!(default_template(&serde_json::json!(3)), None);
}

/// Renders a template in an engine without limits.
fn unmetered(text: &str, messages: &[Message]) -> Result<String, minijinja::Error> {
    let mut environment = minijinja::Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.render_named_str(NAME, text, minijinja::context! { messages => Serde(messages), bos_token => "<s>" })
}

#[test]
fn meters_change_no_result() {
    let messages = [
        Message::new("system", "be brief"),
        Message::new("user", "a <b> & 'c'\n\nd, e"),
        Message::new("assistant", ""),
    ];
    let expressions = [
        "1 + 2",
        "1 + 2.5",
        "true + 1",
        "9223372036854775807 + 1",
        "2 * 3",
        "2 * 1.5",
        "'a' + 'b'",
        "'ab' * 3",
        "3 * 'ab'",
        "[1] + [2, 'x']",
        "[1, 2] * 2",
        "(1, 2) + (3,)",
        "(1, 2) * 2",
        "'a' ~ 1 ~ none ~ [1, 'b'] ~ 2.0",
        "'a' + 1",
        "[1] + 1",
        "none + 'a'",
        "{'a': 1} + {'b': 2}",
        "undefined_name + 'a'",
        "undefined_name ~ 'a'",
        "'x' * -1",
        "1 + 2 * 3 - 4 // 3 % 2 ** 2",
        "messages[0].role",
        "messages[-1]['role']",
        "messages[0].content[3:]",
        "messages[0].content[::-1]",
        "messages[0].content[0]",
        "messages[1:] | length",
        "messages[::-1][0].role",
        "(messages[::-1] | list)[0].role",
        "messages[0]['role'] == 'system' and not none",
        "messages == []",
        "messages[0] == messages[0]",
        "1 < 2 < 3",
        "3 > 2 >= 2 != 1",
        "'sys' in messages[0].role",
        "'content' in messages[0]",
        "'x' not in ['a', messages[0].role]",
        "messages is defined and messages is iterable and messages is sequence",
        "messages[0] is mapping",
        "messages[0].role is eq 'system'",
        "messages[0].role is string",
        "messages[0].role is in ['system']",
        "messages[2].content is none",
        "5 is divisibleby 5",
        "messages | map(attribute='role') | join(', ')",
        "messages | map(attribute='role') | list",
        "messages | selectattr('role', 'equalto', 'user') | list | length",
        "messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | first",
        "messages | selectattr('content') | list | length",
        "[1, none, 2] | select | list",
        "['a', 'B'] | select('upper') | list",
        "[3, 1, 2] | sort",
        "[3, 1, 2] | sort(reverse=true) | join('-')",
        "[1, 1, 2] | unique | list",
        "['b', 'a'] | map('upper') | list",
        "[1, 2, 3, 4, 5] | batch(2, 0) | list",
        "[1, 2, 3, 4, 5] | slice(2) | list",
        "[1, 2] | sum",
        "[[1], [2]] | sum(start=[]) | list",
        "[1, 2] | min",
        "[1, 2] | max",
        "{'b': 1, 'a': 2} | dictsort",
        "{'b': 1, 'a': 2} | items | list",
        "{'b': 1}.items() | list",
        "{'b': 1}.keys() | list",
        "{'b': 1}.values() | list",
        "{'b': 1}.get('c', 'none')",
        "messages[1].content | trim | upper | lower | title | capitalize",
        "messages[1].content | escape",
        "messages[1].content | replace('\n', ' ')",
        "messages[1].content.replace('a', 'bb')",
        "messages[1].content.split('\n\n')[-1].strip()",
        "messages[1].content.split(', ') | list",
        "messages[1].content | split | list",
        "messages[1].content | lines | list",
        "messages[1].content.splitlines()",
        "messages[1].content | indent(2)",
        "messages[1].content | indent(width=2, first=true)",
        "', '.join(['a', 'b', 1])",
        "['a', 'b'] | join",
        "'abc' | join('-')",
        "'%5d|%-5s|%.2f' | format(7, 'a', 1.5)",
        "'{:>5}|{}'.format(7, 'a')",
        "'abc'.startswith('a')",
        "'abc'.endswith(('x', 'c'))",
        "'abc'.find('c')",
        "'abca'.count('a')",
        "[1, 1].count(1)",
        "'a b'.title()",
        "' a '.lstrip()",
        "'ab'.rstrip('b')",
        "messages | length",
        "messages | count",
        "messages | first",
        "messages | last",
        "messages | reverse | map(attribute='role') | list",
        "'abc' | reverse",
        "messages | string | length",
        "messages[0] | pprint",
        "messages | groupby('role') | length",
        "[1, 2] | zip(['a', 'b']) | list",
        "[1] | chain([2]) | list",
        "'5' | int + 1",
        "'1.5' | float",
        "-3 | abs",
        "2.567 | round(2)",
        "'' | default('x', true)",
        "missing | default('x')",
        "messages[0] | attr('role')",
        "dict(a=1, **{'b': 2})",
        "namespace(a=1).a",
        "range(3) | list",
        "range(10, 0, -3) | list",
        "'a' if messages else 'b'",
        "'a' if false",
        "messages[5]",
        "missing.deeper",
        "[messages[0].role, [messages[1].role]]",
        "{'k': messages[0].role}",
        "(messages[0].role, 1)",
        "'x' | safe",
        "true | bool",
        "messages[0].role | upper ~ '!' * 2",
        "none == none",
        "messages[0].content != none",
    ];
    for expression in expressions {
        let text = format!("{{{{ {expression} }}}}");
        let (found, wanted) = (render(&text, &messages), unmetered(&text, &messages));
        match (&found, &wanted) {
            (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{expression}"),
            (Err(_), Err(_)) => {}
            _ => panic!("{expression}: {found:?} instead of {wanted:?}"),
        }
    }
}

#[test]
fn meters_change_no_statement() {
    let messages =
        [Message::new("user", "q"), Message::new("assistant", "<think>t</think>a"), Message::new("user", "r")];
    let templates = [
        "{% set ns = namespace(found=false, list=[]) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = m.content %}{% endif %}{% set ns.list = ns.list + [m.role] %}{% endfor %}{{ ns.found }}{{ ns.list }}",
        "{% for m in messages[::-1] %}{% set index = (messages | length - 1) - loop.index0 %}{{ index }}{{ loop.first }}{{ loop.last }}{{ loop.previtem is defined }}{% endfor %}",
        "{%- macro show(m, prefix='>') -%}{{ prefix ~ m.content }}{%- endmacro %}{{ show(messages[0]) }}{{ show(messages[1], prefix='-') }}",
        "{% macro wrap() %}[{{ caller() }}]{% endmacro %}{% call wrap() %}in{% endcall %}",
        "{% set text %}a{{ messages[0].content }}b{% endset %}{{ text | upper }}{% filter upper %}x{{ text }}{% endfilter %}",
        "{% for m in messages if m.role == 'user' %}{{ m.content }}{% else %}none{% endfor %}",
        "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{% if loop.last %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
        "{% for key, value in messages[0] | items %}{{ key }}={{ value }};{% endfor %}{% for k, v in messages[0].items() %}{{ k }}{{ v }}{% endfor %}",
        "{% for m in messages recursive %}{{ m.role if m is mapping else m }}{% if loop.depth < 3 %}{{ loop(['x']) }}{% endif %}{% endfor %}",
        "{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% with c = a + 1 %}{{ c }}{% endwith %}{% set (d, e) = messages[:2] %}{{ d.role }}",
        "{% set parts = messages[1].content.split('</think>') %}{{ parts[-1].lstrip('\n') }}{{ parts[0].rstrip('\n').split('<think>')[-1] }}",
        "{% for i in range(3) %}{{ loop.cycle('a', 'b') }}{% if loop.changed(i // 2) %}*{% endif %}{% endfor %}",
        "{% if messages[0].role == 'system' %}s{% elif messages[0].role == 'user' %}u{% else %}o{% endif %}\n  {#- c #}\n{%- raw %}{{ x }}{% endraw %}\nend\n",
        "{% autoescape true %}<b>{{ '<i>' }}{{ '<u>' | safe }}{% endautoescape %}{% do namespace() %}",
    ];
    for text in templates {
        let (found, wanted) = (render(text, &messages).unwrap(), unmetered(text, &messages).unwrap());
        assert_eq!(found, wanted, "{text}");
    }
}

#[test]
fn long_conversations_with_tools_are_within_the_limits() {
    let text = "{{ bos_token }}{%- set ns = namespace(last=-1, seen=[]) %}
{%- if tools %}{{ 'Tools:\n' ~ tools | tojson(indent=4) }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}
{%- for message in messages[::-1] %}{%- set index = (messages | length - 1) - loop.index0 %}
{%- if ns.last < 0 and message.role == 'user' and not (message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}{%- set ns.last = index %}{%- endif %}{%- endfor %}
{%- for message in messages %}{%- set content = message.content | trim %}{%- set ns.seen = ns.seen + [message.role] %}
{%- if message.role == 'assistant' %}{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}{%- endif %}
{%- if loop.first or messages[loop.index0 - 1].role != message.role %}{{ '<|' + message.role + '|>' }}{% endif %}{{ content ~ '<|end|>' }}
{%- endfor %}{%- if add_generation_prompt %}<|assistant|>{% endif %}";
    let long = "word ".repeat(100);
    let messages: Vec<Message> = (0..2000)
        .map(|turn| Message::new(["user", "assistant"][turn % 2], format!("<think>{long}</think>{long}")))
        .collect();
    let tool = serde_json::json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": long}}}}});
    let tools = Json::Array(vec![tool; 50]);
    let template = ChatTemplate::from_text(text, Path::new("t")).unwrap();
    let prompt = template.render_with(&messages, &tools, true).unwrap();
    assert!(prompt.len() > 1_000_000 && prompt.ends_with("<|end|><|assistant|>"), "{}", prompt.len());
    let input: usize = messages.iter().map(|message| message.content.len()).sum();
    let meter = Arc::new(Meter::new(Allowance::new(input)));
    render_text(text, &meter, minijinja::context! { messages => Serde(&messages), tools => Serde(&tools) }).unwrap();
    let (memory, work) = meter.used();
    assert!(memory < 0.25 && work < 0.25, "{memory} of the memory, {work} of the work");
}
