//! What a failed write says about when to come back.

use super::*;

#[test]
fn a_write_that_the_api_server_turns_away_says_when_to_come_back() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (class, expected) in [
        (Class::Throttled { retry_after: seconds(7) }, seconds(7)),
        (Class::Throttled { retry_after: None }, seconds(1)),
        (Class::Transient { retry_after: seconds(7) }, seconds(7)),
        (Class::Transient { retry_after: None }, None),
        (Class::Invalid, None),
    ] {
        assert_eq!(retry_after(&class), expected, "{class:?}");
    }
}
