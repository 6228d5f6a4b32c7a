//! Messages of clients, in the form that chat templates expect.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::Failure;

/// A message as clients send it.
#[derive(Debug, Deserialize)]
pub struct ClientMessage {
    role: String,
    #[serde(default)]
    content: Content,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ClientCall>>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

/// A call that the model made earlier.
#[derive(Debug, Deserialize)]
struct ClientCall {
    #[serde(default)]
    id: Option<String>,
    function: ClientFunction,
}

#[derive(Debug, Deserialize)]
struct ClientFunction {
    name: String,
    arguments: String,
}

/// Text, or a list of parts.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Content {
    #[default]
    Nothing,
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

impl Content {
    fn text(self) -> Result<String, Failure> {
        match self {
            Content::Nothing => Ok(String::new()),
            Content::Text(text) => Ok(text),
            Content::Parts(parts) => {
                let mut text = String::new();
                for part in parts {
                    match (part.kind.as_str(), part.text) {
                        ("text" | "input_text" | "output_text", Some(piece)) => text += &piece,
                        (kind, _) => {
                            let problem = format!("parts of type {kind:?} are not supported, only text");
                            return Err(Failure::field("messages", problem));
                        }
                    }
                }
                Ok(text)
            }
        }
    }
}

/// The messages for the template.
pub fn for_template(messages: Vec<ClientMessage>) -> Result<Vec<Value>, Failure> {
    if messages.is_empty() {
        return Err(Failure::field("messages", "there must be at least one message"));
    }
    messages.into_iter().map(one).collect()
}

fn one(message: ClientMessage) -> Result<Value, Failure> {
    let role = match message.role.as_str() {
        // OpenAI's newer name. Templates know only the older one.
        "developer" => "system",
        role @ ("system" | "user" | "assistant" | "tool") => role,
        role => {
            let problem = format!("the role {role:?} is unknown; use system, user, assistant or tool");
            return Err(Failure::field("messages", problem));
        }
    };
    let mut one = json!({"role": role, "content": message.content.text()?});
    if let Some(name) = message.name {
        one["name"] = json!(name);
    }
    if let Some(id) = message.tool_call_id {
        one["tool_call_id"] = json!(id);
    }
    if let Some(calls) = message.tool_calls.filter(|calls| !calls.is_empty()) {
        one["tool_calls"] = calls.into_iter().map(call).collect();
    }
    Ok(one)
}

/// Templates expect arguments as an object, not as OpenAI's string of JSON.
fn call(call: ClientCall) -> Value {
    let ClientFunction { name, arguments } = call.function;
    let arguments = serde_json::from_str::<Value>(&arguments).unwrap_or(Value::String(arguments));
    json!({"id": call.id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(messages: Value) -> Result<Vec<Value>, Failure> {
        for_template(serde_json::from_value(messages).unwrap())
    }

    fn refusal(messages: Value) -> String {
        read(messages).unwrap_err().document().to_string()
    }

    #[test]
    fn parts_become_one_text() {
        let parts =
            json!([{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]);
        assert_eq!(read(parts).unwrap(), [json!({"role": "system", "content": "ab"})]);
    }

    #[test]
    fn arguments_of_calls_become_objects() {
        let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}});
        let messages = json!([{"role": "assistant", "content": null, "tool_calls": [call]},
                              {"role": "tool", "tool_call_id": "1", "content": "2"}]);
        let read = read(messages).unwrap();
        assert_eq!(read[0]["tool_calls"][0]["function"]["arguments"], json!({"a": 1}));
        assert_eq!(read[1], json!({"role": "tool", "content": "2", "tool_call_id": "1"}));
    }

    #[test]
    fn pictures_and_unknown_roles_are_rejected() {
        let picture = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
        assert!(refusal(picture).contains("image_url"));
        assert!(refusal(json!([{"role": "robot", "content": "x"}])).contains("robot"));
        assert!(read(json!([])).is_err());
    }
}
