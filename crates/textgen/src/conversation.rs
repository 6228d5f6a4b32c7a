//! Conversations on one generator. Each turn renders the whole conversation as a prompt, and runs only the part that is
//! not cached yet.

use serde::{Deserialize, Serialize};

use crate::{Answer, ChatTemplate, Error, Generator, Limits, Result, TextStep, Tokenizer, generate_text};

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message with this role and text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }
}

/// A conversation.
#[derive(Debug)]
pub struct Conversation {
    generator: Generator,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Vec<Message>,
    /// The message that [`Conversation::reset`] starts over with.
    system: Option<Message>,
}

impl Conversation {
    /// An empty conversation, with an optional system message.
    pub fn new(
        generator: Generator,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        system: Option<String>,
    ) -> Conversation {
        let system = system.map(|text| Message::new("system", text));
        Conversation { generator, tokenizer, template, messages: system.iter().cloned().collect(), system }
    }

    /// Sends a user message, and streams the answer. A cancelled answer stays in the conversation as far as it got.
    ///
    /// # Errors
    /// When the conversation is too long for the model, or a step fails. The user message is then removed again.
    pub fn ask(&mut self, text: &str, limits: &Limits, on_text: impl FnMut(TextStep<'_>)) -> Result<Answer> {
        self.messages.push(Message::new("user", text));
        let answer = self.answer(limits, on_text);
        match &answer {
            Ok(answer) => self.messages.push(Message::new("assistant", answer.text.clone())),
            Err(_) => drop(self.messages.pop()),
        }
        answer
    }

    fn answer(&mut self, limits: &Limits, on_text: impl FnMut(TextStep<'_>)) -> Result<Answer> {
        let prompt = self.tokenizer.encode(&self.template.render(&self.messages, true)?)?;
        let known = self.generator.tokens(0);
        let same = known.iter().zip(&prompt).take_while(|(known, wanted)| known == wanted).count();
        if prompt.len() >= same + self.generator.room() + (known.len() - same) {
            return Err(Error::request(
                format!("the conversation has {} tokens, too many to add an answer", prompt.len()),
                "start a new conversation, or use a larger max_length",
            ));
        }
        self.generator.rewind(same)?;
        self.generator.append(&prompt[same..])?;
        generate_text(&mut self.generator, &self.tokenizer, limits, on_text)
    }

    /// Removes all messages but the system message.
    ///
    /// # Errors
    /// Never, for a generator with one row.
    pub fn reset(&mut self) -> Result<()> {
        self.messages = self.system.iter().cloned().collect();
        self.generator.rewind(0)
    }

    /// All messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The generator that produces the answers.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }
}
