//! Turns of a conversation on one generator. Each turn is the whole conversation as a prompt, of which only what is not in
//! the cache already is run.

use serde::{Deserialize, Serialize};

use crate::{Answer, ChatTemplate, Error, Generator, Limits, Result, TextStep, Tokenizer, generate_text};

/// One turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
}

impl Message {
    /// A turn of somebody.
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
    /// What the conversation starts with again after [`Conversation::reset`].
    system: Option<Message>,
}

impl Conversation {
    /// An empty conversation, with what the model is told about its part.
    pub fn new(
        generator: Generator,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        system: Option<String>,
    ) -> Conversation {
        let system = system.map(|text| Message::new("system", text));
        Conversation { generator, tokenizer, template, messages: system.iter().cloned().collect(), system }
    }

    /// Says something, and gives the answer piece by piece. A cancelled answer is part of the conversation as far as it came.
    ///
    /// # Errors
    /// When the conversation is too long for the model, or something fails; what was said is then taken back.
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
                format!("the conversation has {} tokens, which leaves no room for an answer", prompt.len()),
                "start a new conversation, or ask for a larger max_length",
            ));
        }
        self.generator.rewind(same)?;
        self.generator.append(&prompt[same..])?;
        generate_text(&mut self.generator, &self.tokenizer, limits, on_text)
    }

    /// Forgets everything that was said.
    ///
    /// # Errors
    /// Never, for a generator of one row.
    pub fn reset(&mut self) -> Result<()> {
        self.messages = self.system.iter().cloned().collect();
        self.generator.rewind(0)
    }

    /// What was said.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What the answers come from.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }
}
