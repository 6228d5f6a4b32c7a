//! Rewrites a template's syntax tree: every operation that can grow a value or take long becomes a metered call.
//!
//! The engine only counts instructions, and one instruction can double a text or compare two lists of a million
//! elements. Its operators cannot be replaced, so the tree is copied: `a + b` becomes a call of [`ADD`], and so on. The
//! function names contain a space, so templates cannot use them.

use minijinja::Value;
use minijinja::machinery::ast::{
    AutoEscape, BinOp, BinOpKind, Call, CallArg, CallBlock, Compare, CompareOp, CompareOpKind, Const, Do, EmitExpr,
    Expr, Filter, FilterBlock, ForLoop, GetAttr, GetItem, IfCond, IfExpr, List, Macro, Map, Set, SetBlock, Slice,
    Spanned, Stmt, Template, Test, Tuple, UnaryOp, UnaryOpKind, Var, WithBlock,
};
use minijinja::machinery::{Span, ast};

/// `a + b`.
pub(super) const ADD: &str = "operator +";
/// `a * b`.
pub(super) const MULTIPLY: &str = "operator *";
/// `a ~ b`.
pub(super) const CONCATENATE: &str = "operator ~";
/// Counts the work of reading a whole value.
pub(super) const READ: &str = "read all";
/// Counts the work of reading a text, or of iterating over a list.
pub(super) const SCAN: &str = "scan elements";
/// Checks a value composed of others.
pub(super) const BUILT: &str = "built value";

/// Tests that depend on the type of a value, not on its content.
const QUICK_TESTS: [&str; 21] = [
    "undefined",
    "defined",
    "none",
    "safe",
    "escaped",
    "boolean",
    "odd",
    "even",
    "divisibleby",
    "number",
    "integer",
    "int",
    "float",
    "string",
    "sequence",
    "iterable",
    "mapping",
    "true",
    "false",
    "filter",
    "test",
];

/// Copies a tree, with metered calls.
///
/// # Errors
/// The name of a tag that needs other templates, which chat templates do not have.
pub(super) fn metered<'a>(stmt: &Stmt<'a>) -> Result<Stmt<'a>, &'static str> {
    Ok(match stmt {
        Stmt::Template(node) => Stmt::Template(spanned(node, Template { children: body(&node.children)? })),
        Stmt::EmitExpr(node) => Stmt::EmitExpr(spanned(node, EmitExpr { expr: expr(&node.expr) })),
        // Only the output of expressions passes through the formatter, where it is counted.
        Stmt::EmitRaw(node) => {
            let value = Value::from_safe_string(node.raw.to_owned());
            let expr = Expr::Const(Spanned::new(Const { value }, node.span()));
            Stmt::EmitExpr(spanned(node, EmitExpr { expr }))
        }
        Stmt::ForLoop(node) => Stmt::ForLoop(spanned(
            node,
            ForLoop {
                target: target(&node.target),
                iter: call(SCAN, vec![expr(&node.iter)], node.span()),
                filter_expr: node.filter_expr.as_ref().map(expr),
                recursive: node.recursive,
                body: body(&node.body)?,
                else_body: body(&node.else_body)?,
            },
        )),
        Stmt::IfCond(node) => Stmt::IfCond(spanned(
            node,
            IfCond { expr: expr(&node.expr), true_body: body(&node.true_body)?, false_body: body(&node.false_body)? },
        )),
        Stmt::WithBlock(node) => {
            let assignments = node.assignments.iter().map(|(name, value)| (target(name), assigned(name, value)));
            Stmt::WithBlock(spanned(node, WithBlock { assignments: assignments.collect(), body: body(&node.body)? }))
        }
        Stmt::Set(node) => {
            let value = assigned(&node.target, &node.expr);
            Stmt::Set(spanned(node, Set { target: target(&node.target), expr: value }))
        }
        Stmt::SetBlock(node) => Stmt::SetBlock(spanned(
            node,
            SetBlock { target: target(&node.target), filter: node.filter.as_ref().map(expr), body: body(&node.body)? },
        )),
        Stmt::AutoEscape(node) => {
            Stmt::AutoEscape(spanned(node, AutoEscape { enabled: expr(&node.enabled), body: body(&node.body)? }))
        }
        Stmt::FilterBlock(node) => {
            Stmt::FilterBlock(spanned(node, FilterBlock { filter: expr(&node.filter), body: body(&node.body)? }))
        }
        Stmt::Macro(node) => Stmt::Macro(macro_of(node)?),
        Stmt::CallBlock(node) => Stmt::CallBlock(spanned(
            node,
            CallBlock { call: call_of(&node.call), macro_decl: macro_of(&node.macro_decl)? },
        )),
        Stmt::Continue(node) => Stmt::Continue(spanned(node, ast::Continue)),
        Stmt::Break(node) => Stmt::Break(spanned(node, ast::Break)),
        Stmt::Do(node) => Stmt::Do(spanned(node, Do { call: call_of(&node.call) })),
        Stmt::Block(_) => return Err("block"),
        Stmt::Extends(_) => return Err("extends"),
        Stmt::Include(_) => return Err("include"),
        Stmt::Import(_) => return Err("import"),
        Stmt::FromImport(_) => return Err("from"),
    })
}

fn body<'a>(stmts: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, &'static str> {
    stmts.iter().map(metered).collect()
}

fn macro_of<'a>(node: &Spanned<Macro<'a>>) -> Result<Spanned<Macro<'a>>, &'static str> {
    let (args, defaults) = (exprs(&node.args), exprs(&node.defaults));
    Ok(spanned(node, Macro { name: node.name, args, defaults, body: body(&node.body)? }))
}

fn exprs<'a>(list: &[Expr<'a>]) -> Vec<Expr<'a>> {
    list.iter().map(expr).collect()
}

fn expr<'a>(of: &Expr<'a>) -> Expr<'a> {
    match of {
        Expr::Var(node) => Expr::Var(spanned(node, Var { id: node.id })),
        Expr::Const(node) => Expr::Const(spanned(node, Const { value: node.value.clone() })),
        Expr::Slice(node) => {
            let part = |part: &Option<Expr<'a>>| part.as_ref().map(expr);
            let (start, stop, step) = (part(&node.start), part(&node.stop), part(&node.step));
            let slice = Slice { expr: call(SCAN, vec![expr(&node.expr)], node.span()), start, stop, step };
            call(BUILT, vec![Expr::Slice(spanned(node, slice))], node.span())
        }
        Expr::UnaryOp(node) => {
            let op = if matches!(node.op, UnaryOpKind::Not) { UnaryOpKind::Not } else { UnaryOpKind::Neg };
            Expr::UnaryOp(spanned(node, UnaryOp { op, expr: expr(&node.expr) }))
        }
        Expr::BinOp(node) => binary(node),
        Expr::Compare(node) => {
            let ops = node.ops.iter().map(|part| CompareOp { op: part.op, expr: compared(&part.expr) });
            let quick = node.ops.iter().all(|part| is_quick(part.op, &part.expr)) || is_none(&node.expr);
            let first = if quick { expr(&node.expr) } else { compared(&node.expr) };
            Expr::Compare(spanned(node, Compare { expr: first, ops: ops.collect() }))
        }
        Expr::IfExpr(node) => Expr::IfExpr(spanned(
            node,
            IfExpr {
                test_expr: expr(&node.test_expr),
                true_expr: expr(&node.true_expr),
                false_expr: node.false_expr.as_ref().map(expr),
            },
        )),
        Expr::Filter(node) => Expr::Filter(spanned(
            node,
            Filter { name: node.name, expr: node.expr.as_ref().map(expr), args: args(&node.args, expr) },
        )),
        Expr::Test(node) => {
            let each = if QUICK_TESTS.contains(&node.name) { expr } else { compared };
            Expr::Test(spanned(node, Test { name: node.name, expr: each(&node.expr), args: args(&node.args, each) }))
        }
        Expr::GetAttr(node) => Expr::GetAttr(spanned(node, GetAttr { expr: expr(&node.expr), name: node.name })),
        Expr::GetItem(node) => {
            let subscript_expr = compared(&node.subscript_expr);
            let expr = call(SCAN, vec![expr(&node.expr)], node.span());
            Expr::GetItem(spanned(node, GetItem { expr, subscript_expr }))
        }
        Expr::Call(node) => Expr::Call(call_of(node)),
        Expr::List(node) => built(node, &node.items, Expr::List(spanned(node, List { items: exprs(&node.items) }))),
        Expr::Tuple(node) => built(node, &node.items, Expr::Tuple(spanned(node, Tuple { items: exprs(&node.items) }))),
        Expr::Map(node) => {
            // Keys are hashed.
            let map = Map { keys: node.keys.iter().map(compared).collect(), values: exprs(&node.values) };
            built(node, &node.values, Expr::Map(spanned(node, map)))
        }
    }
}

fn binary<'a>(node: &Spanned<BinOp<'a>>) -> Expr<'a> {
    let name = match node.op {
        BinOpKind::Add => ADD,
        BinOpKind::Mul => MULTIPLY,
        BinOpKind::Concat => CONCATENATE,
        BinOpKind::ScAnd | BinOpKind::ScOr => {
            let (left, right) = (expr(&node.left), expr(&node.right));
            return Expr::BinOp(spanned(node, BinOp { op: node.op, left, right }));
        }
        _ => {
            let (left, right) = (compared(&node.left), compared(&node.right));
            return Expr::BinOp(spanned(node, BinOp { op: node.op, left, right }));
        }
    };
    call(name, vec![expr(&node.left), expr(&node.right)], node.span())
}

/// An operand that is read completely.
fn compared<'a>(of: &Expr<'a>) -> Expr<'a> {
    match of {
        // A constant is at most as long as the template.
        Expr::Const(_) => expr(of),
        _ => call(READ, vec![expr(of)], of.span()),
    }
}

/// Whether a comparison depends only on the types of its operands.
fn is_quick(op: CompareOpKind, with: &Expr<'_>) -> bool {
    matches!(op, CompareOpKind::Eq | CompareOpKind::Ne) && is_none(with)
}

fn is_none(of: &Expr<'_>) -> bool {
    matches!(of, Expr::Const(node) if node.value.is_none())
}

/// A literal that contains other values. A literal of constants is at most as long as the template.
fn built<'a, T>(node: &Spanned<T>, items: &[Expr<'a>], literal: Expr<'a>) -> Expr<'a> {
    if items.iter().all(|item| matches!(item, Expr::Const(_))) {
        return literal;
    }
    call(BUILT, vec![literal], node.span())
}

/// The assigned value: unpacked into several names, or stored in a namespace, which grows deeper by it.
fn assigned<'a>(target: &Expr<'a>, value: &Expr<'a>) -> Expr<'a> {
    match target {
        Expr::Var(_) => expr(value),
        Expr::GetAttr(_) => call(BUILT, vec![expr(value)], value.span()),
        _ => call(SCAN, vec![expr(value)], value.span()),
    }
}

/// The target of an assignment, unchanged: a name, several names, or an attribute of a namespace.
fn target<'a>(of: &Expr<'a>) -> Expr<'a> {
    match of {
        Expr::List(node) => Expr::List(spanned(node, List { items: node.items.iter().map(target).collect() })),
        Expr::Tuple(node) => Expr::Tuple(spanned(node, Tuple { items: node.items.iter().map(target).collect() })),
        other => expr(other),
    }
}

fn call_of<'a>(node: &Spanned<Call<'a>>) -> Spanned<Call<'a>> {
    // The engine looks up the method's name in this node, so it is kept.
    let callee = match &node.expr {
        Expr::GetAttr(method) => {
            Expr::GetAttr(spanned(method, GetAttr { expr: expr(&method.expr), name: method.name }))
        }
        other => expr(other),
    };
    // `loop.changed` compares its arguments, and does not go through the callback that meters methods.
    let each = match &node.expr {
        Expr::GetAttr(method) if method.name == "changed" => compared,
        _ => expr,
    };
    spanned(node, Call { expr: callee, args: args(&node.args, each) })
}

fn args<'a>(list: &[CallArg<'a>], each: fn(&Expr<'a>) -> Expr<'a>) -> Vec<CallArg<'a>> {
    let one = |arg: &CallArg<'a>| match arg {
        CallArg::Pos(value) => CallArg::Pos(each(value)),
        CallArg::Kwarg(name, value) => CallArg::Kwarg(name, each(value)),
        CallArg::PosSplat(value) => CallArg::PosSplat(call(SCAN, vec![each(value)], value.span())),
        CallArg::KwargSplat(value) => CallArg::KwargSplat(call(SCAN, vec![each(value)], value.span())),
    };
    list.iter().map(one).collect()
}

fn call<'a>(name: &'static str, args: Vec<Expr<'a>>, span: Span) -> Expr<'a> {
    let expr = Expr::Var(Spanned::new(Var { id: name }, span));
    let args = args.into_iter().map(CallArg::Pos).collect();
    Expr::Call(Spanned::new(Call { expr, args }, span))
}

fn spanned<T, U>(of: &Spanned<T>, node: U) -> Spanned<U> {
    Spanned::new(node, of.span())
}
