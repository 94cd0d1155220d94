//! What pods of one template have in common, found out once for those that follow each other.

use std::ptr;

use k8s_openapi::api::core::v1::Pod;

use super::pod_info::PodInfo;

/// A fact about the template of the pod that was looked at last. The pods of a pass are sorted by name, so most have the template
/// of the one before them: instead of the strings and maps of each pod, one pointer is compared.
#[derive(Debug)]
pub(crate) struct LastTemplate<'p, T> {
    last: Option<(&'p Pod, T)>,
}

impl<T> Default for LastTemplate<'_, T> {
    fn default() -> Self {
        Self { last: None }
    }
}

impl<'p, T: Copy> LastTemplate<'p, T> {
    /// What `find` returns for the shape of the pod, without its labels.
    pub(crate) fn of(&mut self, pod: &'p PodInfo, find: impl FnOnce(&'p Pod) -> T) -> T {
        let template = pod.shape().pod();
        if let Some((known, fact)) = self.last
            && ptr::eq(known, template)
        {
            return fact;
        }
        let fact = find(template);
        self.last = Some((template, fact));
        fact
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fact_is_found_once_for_pods_of_a_template_that_follow_each_other() {
        let pod = |namespace: &str| -> PodInfo {
            serde_json::from_value(json!({ "metadata": { "namespace": namespace } })).unwrap()
        };
        let (a, b) = (pod("a"), pod("b"));
        let (mut another, mut found) = (a.clone(), Vec::new());
        another.identify("another", "");
        let mut last = LastTemplate::default();
        for (pod, expected) in [(&a, "a"), (&another, "a"), (&b, "b"), (&another, "a"), (&a, "a")] {
            let namespace = last.of(pod, |template| {
                found.push(expected);
                template.metadata.namespace.as_deref()
            });
            assert_eq!(namespace, Some(expected));
        }
        assert_eq!(found, ["a", "b", "a"]);
    }
}
