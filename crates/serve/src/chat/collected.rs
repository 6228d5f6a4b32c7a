//! Answers that are sent as a whole.

use textgen::TextFinish;
use textgen::engine::TokenLogprob;

use crate::failure::Failure;
use crate::generation::Piece;
use crate::tools::Delta;

use super::Running;

/// A complete choice.
pub struct Collected {
    pub text: String,
    pub reasoning: String,
    /// Ids, names and arguments of calls.
    pub calls: Vec<Call>,
    pub logprobs: Option<Vec<(u32, TokenLogprob)>>,
    pub finish: TextFinish,
}

/// A complete call.
pub struct Call {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

impl Default for Collected {
    fn default() -> Self {
        Collected {
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            logprobs: None,
            finish: TextFinish::Cancelled,
        }
    }
}

impl Running {
    /// Waits for all choices.
    pub async fn collect(&mut self) -> Result<Vec<Collected>, Failure> {
        let mut collected: Vec<Collected> = self.choices.iter().map(|_| Collected::default()).collect();
        while let Some((index, piece)) = self.generation.next().await? {
            let (Some(parts), Some(choice)) = (collected.get_mut(index), self.choices.get_mut(index)) else { continue };
            let deltas = match piece {
                Piece::Finished(finish) => {
                    parts.finish = finish;
                    choice.finish()
                }
                Piece::Text { text, token } => {
                    let deltas = choice.push(token.as_ref().map(|(token, _)| *token), &text);
                    if let Some((token, Some(found))) = token {
                        parts.logprobs.get_or_insert_default().push((token, found));
                    }
                    deltas
                }
            };
            for delta in deltas {
                match delta {
                    Delta::Content(text) => parts.text += &text,
                    Delta::Reasoning(text) => parts.reasoning += &text,
                    Delta::Call { name, arguments } => {
                        let (_, id) = choice.next_call();
                        parts.calls.push(Call { id, name, arguments });
                    }
                }
            }
        }
        Ok(collected)
    }
}
