//! The name that the user probably meant.

/// The known name that is fewest typing errors away from `wanted`, if it is near enough to be a guess.
pub(crate) fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = wanted.chars().count() / 3 + 1;
    let near = known.into_iter().map(|name| (distance(wanted, name), name)).filter(|(far, _)| *far <= most);
    near.min().map(|(_, name)| name)
}

/// `; did you mean NAME?`, or nothing.
pub(crate) fn hint<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wanted, known).map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// Number of letters to insert, delete or replace to turn one word into the other (Levenshtein distance).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = at;
        let mut left = at + 1;
        for (column, expected) in other.iter().enumerate() {
            let above = row[column + 1];
            row[column] = left;
            left = (diagonal + usize::from(letter != *expected)).min(above + 1).min(left + 1);
            diagonal = above;
        }
        row[other.len()] = left;
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        for (one, other, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("node-1", "node-11", 1),
            ("flaw", "lawn", 2),
        ] {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn a_near_name_is_offered_and_a_far_one_is_not() {
        let known = ["small-1", "small-2", "large-1"];
        assert_eq!(hint("smal-2", known), "; did you mean small-2?");
        assert_eq!(hint("gpu", known), "");
    }
}
