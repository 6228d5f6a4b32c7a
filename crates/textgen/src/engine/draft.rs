//! Drafts the next tokens of a sequence by prompt lookup: those that followed the last earlier occurrence of the tokens
//! at its end. Texts that quote their prompt, such as summaries and edited code, often continue in the same way.

/// The longest and the shortest end that is looked up.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// How far back an earlier occurrence may be, which bounds the time of a lookup.
const WINDOW: usize = 8192;

/// Up to `count` tokens that may follow.
pub(super) fn draft(tokens: &[u32], count: usize) -> &[u32] {
    let recent = &tokens[tokens.len().saturating_sub(WINDOW)..];
    for length in (SHORTEST..=LONGEST).rev() {
        let Some(start) = recent.len().checked_sub(length) else { continue };
        let end = &recent[start..];
        let earlier = (0..start).rev().find(|&at| recent[at..at + length] == *end);
        if let Some(at) = earlier {
            let after = at + length;
            return &recent[after..recent.len().min(after + count)];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_continuation_of_the_longest_end_is_drafted() {
        assert_eq!(draft(&[1, 2, 3, 4, 9, 1, 2, 3], 2), [4, 9]);
        assert_eq!(draft(&[1, 2, 7, 1, 2, 8, 1, 2], 1), [8]);
        assert_eq!(draft(&[5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2], 1), [7], "three tokens match, not only two");
    }

    #[test]
    fn new_text_has_no_draft() {
        assert_eq!(draft(&[1, 2, 3, 4], 4), [0; 0]);
        assert_eq!(draft(&[1], 4), [0; 0]);
        assert_eq!(draft(&[], 4), [0; 0]);
        assert_eq!(draft(&[1, 2, 1, 2], 0), [0; 0]);
    }

    #[test]
    fn a_repeated_token_continues_itself() {
        assert_eq!(draft(&[7, 7, 7, 7], 3), [7]);
    }
}
