//! Suggests the name the user meant, by edit distance.

/// More suggestions would not help.
const MAX_SUGGESTIONS: usize = 3;

/// The longest name worth comparing; no option is close to a longer one.
const MAX_CHARS: usize = 64;

/// The names in `known` that are closest to `name`, best first; empty if none is close enough.
pub fn nearest(name: &str, known: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
    let wanted = comparable(name);
    if wanted.is_empty() || wanted.len() > MAX_CHARS {
        return Vec::new();
    }
    let mut found: Vec<(usize, &'static str)> = known
        .into_iter()
        .filter_map(|option| {
            let candidate: Vec<char> = option.chars().collect();
            let distance = edit_distance(&wanted, &candidate);
            // Up to a third of the letters wrong is a typo; an abbreviation such as `fp16` is a prefix of the name it
            // means.
            let near = distance <= wanted.len().max(candidate.len()) / 3;
            let abbreviates = wanted.len() >= 3 && candidate.starts_with(&wanted);
            (near || abbreviates).then_some((distance, option))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, name)| name).take(MAX_SUGGESTIONS).collect()
}

/// The part of a name to compare: `ep.migraphx.fp16_enable` given as an option means `fp16_enable`.
fn comparable(name: &str) -> Vec<char> {
    let last = name.rsplit('.').next().unwrap_or(name);
    let bare = last.strip_prefix("migraphx_").unwrap_or(last);
    bare.chars().map(|letter| if letter == '-' { '_' } else { letter.to_ascii_lowercase() }).collect()
}

/// The number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, to) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(from != to);
            row[j + 1] = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::super::table::OPTIONS;
    use super::*;

    fn nearest(name: &str) -> Vec<&'static str> {
        super::nearest(name, OPTIONS.iter().map(|row| row.name))
    }

    fn distance(a: &str, b: &str) -> usize {
        edit_distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
    }

    #[test]
    fn distance_counts_the_four_kinds_of_typo_once_each() {
        assert_eq!(distance("profile", "profile"), 0);
        assert_eq!(distance("profil", "profile"), 1);
        assert_eq!(distance("proffile", "profile"), 1);
        assert_eq!(distance("prefile", "profile"), 1);
        assert_eq!(distance("porfile", "profile"), 1);
        assert_eq!(distance("", "profile"), 7);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn suggests_what_a_typo_meant() {
        for (typo, meant) in [
            ("profil", "profile"),
            ("Profile", "profile"),
            ("deviceid", "device_id"),
            ("device-id", "device_id"),
            ("cachedir", "cache_dir"),
            ("exhaustive_tuning", "exhaustive_tune"),
            ("fp16", "fp16_enable"),
            ("migraphx_fp16_enabel", "fp16_enable"),
            ("ep.migraphx.fp16_enable", "fp16_enable"),
            ("strict", "strict_options"),
        ] {
            assert_eq!(nearest(typo).first(), Some(&meant), "{typo}");
        }
    }

    #[test]
    fn suggests_nothing_for_an_unrelated_name() {
        for stranger in ["", "xyzzy", "number_of_threads_to_use", "ü", &"x".repeat(1000)] {
            assert_eq!(nearest(stranger), Vec::<&str>::new(), "{stranger}");
        }
    }
}
