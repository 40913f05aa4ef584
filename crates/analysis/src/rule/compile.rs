//! From the text of a rule to what is computed, with all that can be wrong in it.

use super::tree::{Calculate, Compare, Flag, Number, OfList, Place};
use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators as op};
use cel::parser::Parser;
use konkordia_core::results::{self, ResultKind};

/// Most characters of a rule.
pub const RULE_CHARACTERS_MAX: usize = 2000;
/// How deep a rule may be nested.
const DEPTH_MAX: u16 = 50;
/// Memory for the parser, which calls itself for each level.
const STACK_BYTES: usize = 16 << 20;

/// Checks and translates a rule.
pub(super) fn compile(text: &str, kinds: &[ResultKind]) -> Result<Flag, String> {
    if text.chars().count() > RULE_CHARACTERS_MAX {
        return Err(format!("it has more than {RULE_CHARACTERS_MAX} characters"));
    }
    let parsed = parse(text)?;
    match (Compiler { kinds }).value(&parsed.expr)? {
        Value::Flag(flag) => Ok(flag),
        other => Err(format!("it is {}, and not true or false; compare it with something, as in spots > 5", other.words())),
    }
}

/// Parses on a thread with room for all levels; a mistake of the parser costs only this rule.
fn parse(text: &str) -> Result<IdedExpr, String> {
    let text = text.to_owned();
    let parse = move || {
        Parser::new().max_recursion_depth(DEPTH_MAX).parse(&text).map_err(|errors| {
            let first = errors.errors.first().map(|error| (error.pos.1.max(0), error.msg.clone()));
            first.map_or_else(
                || "it cannot be read".into(),
                |(column, what)| format!("column {}: {}", column + 1, what.lines().next().unwrap_or_default()),
            )
        })
    };
    let thread = std::thread::Builder::new().name("rule".into()).stack_size(STACK_BYTES).spawn(parse);
    let thread = thread.map_err(|error| format!("the system cannot start a thread: {error}"))?;
    thread.join().unwrap_or_else(|_| Err("it cannot be read".into()))
}

enum Value {
    Flag(Flag),
    Number(Number),
    List(Place),
}

impl Value {
    fn words(&self) -> &'static str {
        match self {
            Self::Flag(_) => "true or false",
            Self::Number(_) => "a number",
            Self::List(_) => "a list of numbers",
        }
    }
}

struct Compiler<'a> {
    kinds: &'a [ResultKind],
}

impl Compiler<'_> {
    fn value(&self, expr: &Expr) -> Result<Value, String> {
        match expr {
            Expr::Ident(name) => self.result(name),
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(value) => Ok(Value::Flag(Flag::Constant(*value.inner()))),
                LiteralValue::Double(value) => Ok(Value::Number(Number::Constant(*value.inner()))),
                LiteralValue::Int(value) => Ok(Value::Number(Number::Constant(*value.inner() as f64))),
                LiteralValue::UInt(value) => Ok(Value::Number(Number::Constant(*value.inner() as f64))),
                LiteralValue::String(_) | LiteralValue::Bytes(_) | LiteralValue::Null => {
                    Err("results are numbers; texts and null are not possible".into())
                }
            },
            Expr::Call(call) => self.call(call),
            Expr::Select(select) => Err(format!("'.{}': results have no fields", select.field)),
            Expr::Comprehension(_) => {
                Err("all, exists, filter and map are not possible; use size, sum, min or max of a list".into())
            }
            Expr::List(_) | Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => {
                Err("lists and maps cannot be written; use the names of results".into())
            }
        }
    }

    fn result(&self, name: &str) -> Result<Value, String> {
        let place = |name: &str| results::place(self.kinds, name);
        let Some((kind, at)) = self.kinds.iter().find(|kind| kind.name == name).zip(place(name)) else {
            let names: Vec<&str> = self.kinds.iter().map(|kind| kind.name).collect();
            return Err(format!("there is no result '{name}'; there are: {}", names.join(", ")));
        };
        let counted_at = kind.counted_by.and_then(place);
        let place = Place { at, length: kind.length, number: kind.number, counted_at };
        Ok(if kind.is_single() { Value::Number(Number::Single(place)) } else { Value::List(place) })
    }

    fn number(&self, expr: &IdedExpr, of: &str) -> Result<Number, String> {
        match self.value(&expr.expr)? {
            Value::Number(number) => Ok(number),
            other => Err(format!("{of} needs a number, and not {}", other.words())),
        }
    }

    fn flag(&self, expr: &IdedExpr, of: &str) -> Result<Flag, String> {
        match self.value(&expr.expr)? {
            Value::Flag(flag) => Ok(flag),
            other => Err(format!("{of} needs true or false, and not {}: compare it, as in spots > 5", other.words())),
        }
    }

    fn list(&self, expr: &IdedExpr, of: &str) -> Result<Place, String> {
        match self.value(&expr.expr)? {
            Value::List(place) => Ok(place),
            other => Err(format!("{of} needs a list, and not {}", other.words())),
        }
    }

    fn call(&self, call: &CallExpr) -> Result<Value, String> {
        let name = call.func_name.as_str();
        let arguments: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        match (name, &arguments[..]) {
            (op::LOGICAL_NOT, [of]) => Ok(Value::Flag(Flag::Not(Box::new(self.flag(of, "!")?)))),
            (op::NEGATE, [of]) => Ok(Value::Number(Number::Negative(Box::new(self.number(of, "-")?)))),
            ("abs", [of]) => Ok(Value::Number(Number::Absolute(Box::new(self.number(of, "abs")?)))),
            (op::LOGICAL_AND | op::LOGICAL_OR, [left, right]) => {
                let word = if name == op::LOGICAL_AND { "&&" } else { "||" };
                let sides = Box::new([self.flag(left, word)?, self.flag(right, word)?]);
                Ok(Value::Flag(if name == op::LOGICAL_AND { Flag::And(sides) } else { Flag::Or(sides) }))
            }
            (op::CONDITIONAL, [condition, yes, no]) => self.conditional(condition, yes, no),
            (op::INDEX, [list, index]) => {
                let place = self.list(list, "[ ]")?;
                Ok(Value::Number(Number::Entry(place, Box::new(self.number(index, "[ ]")?))))
            }
            (_, [left, right]) if calculate(name).is_some() => {
                let (calculate, word) = calculate(name).expect("it was asked");
                let sides = Box::new([self.number(left, word)?, self.number(right, word)?]);
                Ok(Value::Number(Number::Calculate(calculate, sides)))
            }
            (_, [left, right]) if compare(name).is_some() => {
                let (compare, word) = compare(name).expect("it was asked");
                self.comparison(compare, word, left, right)
            }
            (_, [list]) if of_list(name).is_some() => {
                let what = of_list(name).expect("it was asked");
                Ok(Value::Number(Number::OfList(what, self.list(list, name)?)))
            }
            ("abs" | "size" | "sum" | "min" | "max", others) => Err(format!("{name} takes one value, and not {}", others.len())),
            _ => Err(format!(
                "'{}' is not possible; there are + - * / % < <= > >= == != ! && || ?: [ ] and abs, size, sum, min, max",
                name.trim_matches(['_', '@'])
            )),
        }
    }

    fn conditional(&self, condition: &IdedExpr, yes: &IdedExpr, no: &IdedExpr) -> Result<Value, String> {
        let condition = self.flag(condition, "?:")?;
        match (self.value(&yes.expr)?, self.value(&no.expr)?) {
            (Value::Flag(yes), Value::Flag(no)) => Ok(Value::Flag(Flag::If(Box::new([condition, yes, no])))),
            (Value::Number(yes), Value::Number(no)) => Ok(Value::Number(Number::If(Box::new((condition, yes, no))))),
            (yes, no) => Err(format!("?: has {} on one side and {} on the other", yes.words(), no.words())),
        }
    }

    fn comparison(&self, compare: Compare, word: &str, left: &IdedExpr, right: &IdedExpr) -> Result<Value, String> {
        match (self.value(&left.expr)?, self.value(&right.expr)?) {
            (Value::Number(left), Value::Number(right)) => Ok(Value::Flag(Flag::Compare(compare, Box::new([left, right])))),
            (Value::Flag(left), Value::Flag(right)) if matches!(compare, Compare::Equal | Compare::NotEqual) => {
                let same = Flag::Same(Box::new([left, right]));
                Ok(Value::Flag(if compare == Compare::Equal { same } else { Flag::Not(Box::new(same)) }))
            }
            (left, right) => Err(format!("{word} cannot compare {} with {}", left.words(), right.words())),
        }
    }
}

fn calculate(name: &str) -> Option<(Calculate, &'static str)> {
    Some(match name {
        op::ADD => (Calculate::Add, "+"),
        op::SUBSTRACT => (Calculate::Subtract, "-"),
        op::MULTIPLY => (Calculate::Multiply, "*"),
        op::DIVIDE => (Calculate::Divide, "/"),
        op::MODULO => (Calculate::Remainder, "%"),
        _ => return None,
    })
}

fn compare(name: &str) -> Option<(Compare, &'static str)> {
    Some(match name {
        op::LESS => (Compare::Less, "<"),
        op::LESS_EQUALS => (Compare::LessEqual, "<="),
        op::GREATER => (Compare::Greater, ">"),
        op::GREATER_EQUALS => (Compare::GreaterEqual, ">="),
        op::EQUALS => (Compare::Equal, "=="),
        op::NOT_EQUALS => (Compare::NotEqual, "!="),
        _ => return None,
    })
}

fn of_list(name: &str) -> Option<OfList> {
    Some(match name {
        "size" => OfList::Size,
        "sum" => OfList::Sum,
        "min" => OfList::Min,
        "max" => OfList::Max,
        _ => return None,
    })
}
