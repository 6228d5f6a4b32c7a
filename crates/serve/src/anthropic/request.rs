//! Requests in Anthropic's form.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::Failure;

/// A request.
#[derive(Deserialize)]
pub struct MessagesRequest {
    max_tokens: usize,
    messages: Vec<Message>,
    system: Option<Content>,
    stream: Option<bool>,
    stop_sequences: Option<Vec<String>>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    model: Option<Value>,
    temperature: Option<Value>,
    top_p: Option<Value>,
    top_k: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text { text: String },
    ToolUse { id: String, name: String, input: Value },
    ToolResult { tool_use_id: String, content: Option<Content> },
    Thinking {},
    RedactedThinking {},
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    description: Option<String>,
    input_schema: Option<Value>,
}

#[derive(Deserialize)]
struct ToolChoice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
}

impl MessagesRequest {
    pub fn is_stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// The stop sequence, if there is only one: the engine does not tell which of several ended the answer.
    pub fn only_stop(&self) -> Option<String> {
        match self.stop_sequences.as_deref() {
            Some([only]) => Some(only.clone()),
            _ => None,
        }
    }

    /// The request in OpenAI's form.
    pub fn translated(self) -> Result<Value, Failure> {
        let mut messages = Vec::new();
        if let Some(system) = self.system {
            messages.push(json!({"role": "system", "content": system.text()?}));
        }
        for message in self.messages {
            message.translate(&mut messages)?;
        }
        let mut body = json!({"messages": messages, "max_tokens": self.max_tokens, "stop": self.stop_sequences});
        let same =
            [("model", self.model), ("temperature", self.temperature), ("top_p", self.top_p), ("top_k", self.top_k)];
        for (name, value) in same {
            body[name] = json!(value);
        }
        if let Some(tools) = self.tools.filter(|tools| !tools.is_empty()) {
            body["tools"] = tools.into_iter().map(tool).collect();
        }
        if let Some(choice) = self.tool_choice {
            body["tool_choice"] = match (choice.kind.as_str(), choice.name) {
                ("any", _) => json!("required"),
                ("tool", Some(name)) => json!({"type": "function", "function": {"name": name}}),
                (kind, _) => json!(kind),
            };
        }
        Ok(body)
    }
}

fn tool(tool: Tool) -> Value {
    let Tool { name, description, input_schema } = tool;
    json!({"type": "function", "function": {"name": name, "description": description, "parameters": input_schema}})
}

impl Content {
    fn text(self) -> Result<String, Failure> {
        match self {
            Content::Text(text) => Ok(text),
            Content::Blocks(blocks) => {
                let text = |block| match block {
                    Block::Text { text } => Ok(text),
                    _ => Err(Failure::field("messages", "only blocks of type text are possible here")),
                };
                blocks.into_iter().map(text).collect()
            }
        }
    }
}

impl Message {
    /// Results of tools are messages of their own in OpenAI's form.
    fn translate(self, messages: &mut Vec<Value>) -> Result<(), Failure> {
        let blocks = match self.content {
            Content::Text(text) => {
                messages.push(json!({"role": self.role, "content": text}));
                return Ok(());
            }
            Content::Blocks(blocks) => blocks,
        };
        let (mut text, mut calls) = (String::new(), Vec::new());
        for block in blocks {
            match block {
                Block::Text { text: piece } => text += &piece,
                Block::ToolUse { id, name, input } => {
                    let function = json!({"name": name, "arguments": input.to_string()});
                    calls.push(json!({"id": id, "type": "function", "function": function}));
                }
                Block::ToolResult { tool_use_id, content } => {
                    let content = content.map_or(Ok(String::new()), Content::text)?;
                    messages.push(json!({"role": "tool", "tool_call_id": tool_use_id, "content": content}));
                }
                // Templates leave the reasoning of earlier answers out.
                Block::Thinking {} | Block::RedactedThinking {} => {}
            }
        }
        if !text.is_empty() || !calls.is_empty() {
            messages.push(json!({"role": self.role, "content": text, "tool_calls": calls}));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(body: Value) -> Value {
        serde_json::from_value::<MessagesRequest>(body).unwrap().translated().unwrap()
    }

    #[test]
    fn calls_and_results_become_messages() {
        let body = translated(json!({
            "model": "m", "max_tokens": 5, "system": "Be brief.", "temperature": 0.5, "stop_sequences": ["x"],
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "2"},
                    {"type": "text", "text": "so?"}]},
            ],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"},
        }));
        let roles: Vec<_> = body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(body["messages"][2]["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
        assert_eq!(
            (&body["tool_choice"], &body["temperature"], &body["max_tokens"]),
            (&json!("required"), &json!(0.5), &json!(5))
        );
        assert_eq!(body["tools"][0]["function"]["name"], "f");
    }
}
