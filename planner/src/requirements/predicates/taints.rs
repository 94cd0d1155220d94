//! Taints and tolerations, with all operators and effects.

use crate::reasons::Rejection;
use crate::requirements::constraints::Tolerated;
use crate::requirements::node_profile::RepellingTaint;

/// Whether every taint is tolerated.
///
/// # Errors
///
/// The first taint that is not.
pub(crate) fn tolerated(tolerations: &[Tolerated], taints: &[RepellingTaint]) -> Result<(), Rejection> {
    match taints.iter().find(|taint| !tolerations.iter().any(|t| tolerates(t, taint))) {
        None => Ok(()),
        Some(RepellingTaint { key, value, effect }) => {
            let value = if value.is_empty() { String::new() } else { format!("={value}") };
            Err(Rejection::UntoleratedTaint(format!("{key}{value}:{effect}")))
        }
    }
}

fn tolerates(toleration: &Tolerated, taint: &RepellingTaint) -> bool {
    let Tolerated { key, operator, value, effect } = toleration;
    if !effect.is_empty() && *effect != taint.effect {
        return false;
    }
    if !key.is_empty() && *key != taint.key {
        return false;
    }
    match operator.as_str() {
        // An empty key means every key only together with `Exists`.
        "" | "Equal" => !key.is_empty() && *value == taint.value,
        "Exists" => true,
        "Lt" => compare(&taint.value, value, |taint, bound| taint < bound),
        "Gt" => compare(&taint.value, value, |taint, bound| taint > bound),
        _ => false,
    }
}

/// Numeric tolerations (KEP-5471): both sides must be integers.
fn compare(taint: &str, bound: &str, holds: fn(i64, i64) -> bool) -> bool {
    matches!((taint.parse(), bound.parse()), (Ok(taint), Ok(bound)) if holds(taint, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Tolerated {
        let [key, operator, value, effect] = [key, operator, value, effect].map(str::to_owned);
        Tolerated { key, operator, value, effect }
    }

    fn taint(key: &str, value: &str, effect: &str) -> RepellingTaint {
        let [key, value, effect] = [key, value, effect].map(str::to_owned);
        RepellingTaint { key, value, effect }
    }

    #[test]
    fn tolerations_match_as_in_the_scheduler() {
        let dedicated = taint("dedicated", "gpu", "NoSchedule");
        for (operator, key, value, effect, tolerated) in [
            ("", "dedicated", "gpu", "", true),
            ("Equal", "dedicated", "gpu", "NoSchedule", true),
            ("Equal", "dedicated", "gpu", "NoExecute", false),
            ("Equal", "dedicated", "cpu", "", false),
            ("Equal", "other", "gpu", "", false),
            ("Equal", "", "gpu", "", false),
            ("Exists", "dedicated", "", "", true),
            ("Exists", "dedicated", "", "NoSchedule", true),
            ("Exists", "", "", "", true),
            ("Exists", "", "", "NoExecute", false),
            ("Nonsense", "dedicated", "gpu", "", false),
        ] {
            let found = tolerates(&toleration(key, operator, value, effect), &dedicated);
            assert_eq!(found, tolerated, "{operator} {key}={value}:{effect}");
        }
    }

    #[test]
    fn numeric_tolerations_compare_integers() {
        for (operator, value, taint_value, tolerated) in [
            ("Gt", "750", "800", true),
            ("Gt", "800", "800", false),
            ("Lt", "800", "750", true),
            ("Lt", "-5", "-6", true),
            ("Gt", "high", "800", false),
            ("Gt", "750", "", false),
        ] {
            let found =
                tolerates(&toleration("sla", operator, value, ""), &taint("sla", taint_value, "NoSchedule"));
            assert_eq!(found, tolerated, "{taint_value} {operator} {value}");
        }
    }

    #[test]
    fn the_first_taint_that_is_not_tolerated_is_named() {
        let taints = [taint("a", "", "NoSchedule"), taint("b", "x", "NoExecute")];
        assert_eq!(
            tolerated(&[toleration("a", "Exists", "", "")], &taints),
            Err(Rejection::UntoleratedTaint("b=x:NoExecute".to_owned()))
        );
        assert_eq!(tolerated(&[toleration("", "Exists", "", "")], &taints), Ok(()));
        assert_eq!(tolerated(&[], &[]), Ok(()));
    }
}
