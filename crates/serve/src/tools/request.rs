//! The tools of a request.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use textgen::{ChatTemplate, Form};

use crate::failure::Failure;

use super::format::Format;

/// The most tools of a request.
const MOST: usize = 128;

/// `tools` and `tool_choice`.
#[derive(Debug, Default, Deserialize)]
pub struct Tools {
    #[serde(default)]
    tools: Option<Vec<Tool>>,
    #[serde(default)]
    tool_choice: Option<Choice>,
}

#[derive(Clone, Debug, Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: String,
    function: Function,
}

#[derive(Clone, Debug, Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Choice {
    Word(String),
    Named { function: Named },
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

/// How the tools of a request are used.
#[derive(Debug, Default)]
pub struct ToolUse {
    /// For the template; `null` without tools.
    pub described: Value,
    /// How calls are written; `None` if the model cannot make any.
    pub format: Option<Format>,
    /// A call is required: the answer is nothing but an object with its name and arguments.
    pub forced: Option<Form>,
}

impl Tools {
    /// Checks the tools, and decides how they are used with a model.
    pub fn used(self, template: &ChatTemplate) -> Result<ToolUse, Failure> {
        let format = Format::of(template);
        // Channels are separated from the text even if there are no tools.
        let unused = ToolUse { format: format.filter(|format| *format == Format::Harmony), ..ToolUse::default() };
        let tools = self.tools.unwrap_or_default();
        if tools.is_empty() {
            return match self.tool_choice {
                Some(Choice::Named { .. }) => Err(Failure::field("tool_choice", "there are no tools")),
                Some(Choice::Word(word)) if word == "required" => {
                    Err(Failure::field("tool_choice", "there are no tools"))
                }
                _ => Ok(unused),
            };
        }
        check(&tools)?;
        if format.is_none() {
            let message = "the chat template of this model does not know tools";
            return Err(Failure::unprocessable(message).about("tools"));
        }
        let forced = match &self.tool_choice {
            None => None,
            Some(Choice::Word(word)) => match word.as_str() {
                "auto" => None,
                "none" => return Ok(unused),
                "required" => Some(form(&tools)),
                word => return Err(Failure::field("tool_choice", format!("{word:?} is not auto, none or required"))),
            },
            Some(Choice::Named { function }) => {
                let chosen: Vec<Tool> =
                    tools.iter().filter(|tool| tool.function.name == function.name).cloned().collect();
                if chosen.is_empty() {
                    return Err(Failure::field("tool_choice", format!("there is no tool {:?}", function.name)));
                }
                Some(form(&chosen))
            }
        };
        Ok(ToolUse { described: tools.iter().map(described).collect(), format, forced })
    }
}

fn check(tools: &[Tool]) -> Result<(), Failure> {
    if tools.len() > MOST {
        return Err(Failure::field("tools", format!("there are {} tools, more than {MOST}", tools.len())));
    }
    for tool in tools {
        let name = &tool.function.name;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            let problem = format!("the name {name:?} must have 1 to 64 letters, digits, dots, underscores or dashes");
            return Err(Failure::field("tools", problem));
        }
        if tool.kind != "function" {
            return Err(Failure::field("tools", format!("tools of type {:?} are not supported", tool.kind)));
        }
        if tool.function.parameters.as_ref().is_some_and(|schema| !schema.is_object()) {
            return Err(Failure::field("tools", format!("the parameters of {name} are not a JSON schema")));
        }
    }
    Ok(())
}

fn described(tool: &Tool) -> Value {
    let Function { name, description, parameters } = &tool.function;
    let parameters = parameters.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    let description = description.clone().unwrap_or_default();
    json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})
}

/// The form of an answer that calls one of the tools.
fn form(tools: &[Tool]) -> Form {
    Form::JsonSchema(schema(tools).to_string())
}

/// The schema of such an answer. The parameters of all tools are definitions of it.
fn schema(tools: &[Tool]) -> Value {
    let (mut definitions, mut forms) = (Map::new(), Vec::new());
    for (index, tool) in tools.iter().enumerate() {
        let (name, place) = (format!("tool{index}"), format!("#/$defs/tool{index}"));
        let mut parameters = tool.function.parameters.clone().unwrap_or_else(|| json!({"type": "object"}));
        move_references(&mut parameters, &place);
        definitions.insert(name, parameters);
        forms.push(json!({
            "type": "object",
            "properties": {"name": {"const": tool.function.name}, "arguments": {"$ref": place}},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        }));
    }
    let mut schema = if forms.len() == 1 { forms.remove(0) } else { json!({"anyOf": forms}) };
    schema["$defs"] = Value::Object(definitions);
    schema
}

/// Adapts references inside a schema, such as `#/$defs/City`, to its new place in a larger one.
fn move_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(target) if name == "$ref" => {
                        if let Some(rest) =
                            target.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'))
                        {
                            *target = format!("{place}{rest}");
                        }
                    }
                    value => move_references(value, place),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| move_references(value, place)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_follow_the_parameters_of_their_tool() {
        let tool = |name: &str, parameters: Value| -> Tool {
            let function = json!({"name": name, "parameters": parameters});
            serde_json::from_value(json!({"type": "function", "function": function})).unwrap()
        };
        let city = json!({"properties": {"city": {"$ref": "#/$defs/City"}}, "$defs": {"City": {"enum": ["Oslo"]}}});
        let tree = json!({"properties": {"children": {"items": {"$ref": "#"}}}});
        let schema = schema(&[tool("weather", city), tool("plant", tree)]);
        for (form, target) in ["#/$defs/tool0", "#/$defs/tool1"].into_iter().enumerate() {
            assert_eq!(schema["anyOf"][form]["properties"]["arguments"]["$ref"], target);
        }
        assert_eq!(schema["$defs"]["tool0"]["properties"]["city"]["$ref"], "#/$defs/tool0/$defs/City");
        assert_eq!(schema.pointer("/$defs/tool0/$defs/City"), Some(&json!({"enum": ["Oslo"]})));
        assert_eq!(schema["$defs"]["tool1"]["properties"]["children"]["items"]["$ref"], "#/$defs/tool1");
    }
}
