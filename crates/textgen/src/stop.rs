//! Stop strings, which may start and end in the middle of a token.

/// Searches for stop strings in text that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
}

/// The result of one piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// This text can be shown.
    Text(String),
    /// This text can be shown; a stop string followed it.
    Stopped(String),
}

impl StopStrings {
    /// Ignores empty stop strings.
    pub fn new(stops: impl IntoIterator<Item = String>) -> StopStrings {
        StopStrings { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), held: String::new() }
    }

    /// Adds a piece of text.
    pub(crate) fn push(&mut self, piece: &str) -> Passed {
        self.held.push_str(piece);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop)).min() {
            let mut held = std::mem::take(&mut self.held);
            held.truncate(at);
            return Passed::Stopped(held);
        }
        let shown = self.first_doubt();
        let rest = self.held.split_off(shown);
        Passed::Text(std::mem::replace(&mut self.held, rest))
    }

    /// Ends the text, and returns the part that was held back.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Start of the longest suffix that may be the beginning of a stop string.
    fn first_doubt(&self) -> usize {
        let begins_a_stop = |&(at, _): &(usize, char)| self.stops.iter().any(|stop| stop.starts_with(&self.held[at..]));
        self.held.char_indices().find(begins_a_stop).map_or(self.held.len(), |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut stop = StopStrings::new(stops.iter().map(|&stop| stop.to_owned()));
        let mut shown = String::new();
        for piece in pieces {
            match stop.push(piece) {
                Passed::Text(text) => shown += &text,
                Passed::Stopped(text) => return (shown + &text, true),
            }
        }
        shown += &stop.finish();
        (shown, false)
    }

    #[test]
    fn a_stop_is_found_across_pieces_and_not_shown() {
        assert_eq!(run(&["END"], &["one E", "N", "D two"]), ("one ".to_owned(), true));
        assert_eq!(run(&["END"], &["one E", "N", " two"]), ("one EN two".to_owned(), false));
        assert_eq!(run(&["\n\n", "User:"], &["a\nUs", "er", ": b"]), ("a\n".to_owned(), true));
    }

    #[test]
    fn a_possible_stop_prefix_is_held_back_only_as_long_as_needed() {
        let mut stop = StopStrings::new(["aab".to_owned()]);
        assert_eq!(stop.push("xa"), Passed::Text("x".into()));
        assert_eq!(stop.push("a"), Passed::Text(String::new()));
        assert_eq!(stop.push("a"), Passed::Text("a".into()));
        assert_eq!(stop.push("b"), Passed::Stopped(String::new()));
    }

    proptest! {
        #[test]
        fn splitting_into_pieces_does_not_matter(
            text in "[abc é]{0,30}",
            stops in prop::collection::vec("[abc é]{1,4}", 0..3),
            cuts in prop::collection::vec(1usize..5, 30),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let chars: Vec<char> = text.chars().collect();
            let (mut pieces, mut rest) = (Vec::new(), &chars[..]);
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece.iter().collect::<String>());
                rest = after;
            }
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let first = stops.iter().filter_map(|stop| text.find(stop)).min();
            let (shown, stopped) = run(&stops, &pieces);
            // A stop string completed in an earlier piece ends the text, even if another one starts before it.
            prop_assert_eq!(stopped, first.is_some());
            prop_assert!(text.starts_with(&shown));
            match first {
                None => prop_assert_eq!(shown, text),
                Some(first) => prop_assert!(shown.len() >= first),
            }
        }
    }
}
