//! Formats errors: every fact once, and help at the end.

use crate::ort::message;

const HELP: &str = "\n  help: ";

/// An error with its causes, as one text.
///
/// Error types of libraries often repeat their cause, and a message that ends with help is often wrapped in another
/// one.
pub fn text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut helps: Vec<String> = Vec::new();
    for cause in error.chain() {
        let cause = message::plain(&cause.to_string());
        let (what, help) = cause.split_once(HELP).map_or((&*cause, None), |(what, help)| (what, Some(help)));
        if !text.contains(what) {
            text = if text.is_empty() { what.to_owned() } else { format!("{text}: {what}") };
        }
        if let Some(help) = help.filter(|help| !helps.iter().any(|known| known.contains(help))) {
            helps.push(help.to_owned());
        }
    }
    helps.into_iter().fold(text, |text, help| text + HELP + &help)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_already_shown_is_not_repeated() {
        let missing = || anyhow!("No such file or directory (os error 2)");
        let wrapped =
            missing().context("x.json could not be read: No such file or directory (os error 2)\n  help: name x");
        assert_eq!(text(&wrapped), "x.json could not be read: No such file or directory (os error 2)\n  help: name x");
        assert_eq!(text(&missing().context("y")), "y: No such file or directory (os error 2)");
    }

    #[test]
    fn help_comes_last() {
        let error = anyhow!("no room\n  help: make some").context("x failed\n  help: try y").context("outer");
        assert_eq!(text(&error), "outer: x failed: no room\n  help: try y\n  help: make some");
    }
}
