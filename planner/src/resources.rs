//! Amounts of resources as the scheduler counts them: cpu in thousandths, everything else in whole units, extended
//! resources in addition to the four basic ones.
//!
//! Arithmetic only. [`crate::requirements::requests`] and [`super::pools`] read the amounts.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shared_crds::quantity::{Exact, InvalidQuantity};

/// The resources every node has. Their order is the scheduler's order of reporting a shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Basic {
    /// Number of pods.
    Pods = 0,
    /// Thousandths of a core.
    Cpu = 1,
    /// Bytes.
    Memory = 2,
    /// Bytes.
    EphemeralStorage = 3,
}

impl Basic {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Pods, Self::Cpu, Self::Memory, Self::EphemeralStorage];

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "pods" => Self::Pods,
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::EphemeralStorage,
            _ => return None,
        })
    }
}

/// One resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Resource {
    /// One that every node has.
    Basic(Basic),
    /// One identified by name, as [`ResourceNames`] numbers it.
    Scalar(u16),
}

/// The extended resources that are whole GPUs, or equal shares of them: those of Cluster Autoscaler's
/// `GPUVendorResourceNames`, of the older driver that Intel's device plugin supports (`i915`), and of time-slicing in
/// NVIDIA's. Intel's others are left out (`i915_monitoring`, `millicores`, `memory.max`): a node has them beside its GPUs,
/// and daemons that only watch the GPUs ask for them.
const GPUS: [&str; 7] = [
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "microsoft.com/directx",
];

/// How the names of NVIDIA's GPU partitions begin (`nvidia.com/mig-1g.5gb`). A node whose GPUs are partitioned may have
/// no `nvidia.com/gpu`.
const GPU_PARTITIONS: &str = "nvidia.com/mig-";

/// The names of the extended resources (and huge pages) in this pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResourceNames {
    ids: BTreeMap<String, u16>,
    names: Vec<String>,
    gpus: Vec<Resource>,
}

impl ResourceNames {
    /// The resource with that name; `None` for a name that the scheduler does not count.
    pub(crate) fn resolve(&mut self, name: &str) -> Option<Resource> {
        if let Some(basic) = Basic::named(name) {
            return Some(Resource::Basic(basic));
        }
        if !is_scalar(name) {
            return None;
        }
        if let Some(&id) = self.ids.get(name) {
            return Some(Resource::Scalar(id));
        }
        let id = u16::try_from(self.names.len()).ok()?;
        self.ids.insert(name.to_owned(), id);
        self.names.push(name.to_owned());
        if is_gpu(name) {
            self.gpus.push(Resource::Scalar(id));
        }
        Some(Resource::Scalar(id))
    }

    /// Those of the resources so far that are GPUs, and that `amounts` has.
    pub(crate) fn gpus_of(&self, amounts: &Amounts) -> Vec<Resource> {
        self.gpus.iter().copied().filter(|&gpu| amounts.get(gpu) > 0).collect()
    }

    /// The name of a resource.
    pub(crate) fn name(&self, resource: Resource) -> &str {
        match resource {
            Resource::Basic(Basic::Pods) => "pods",
            Resource::Basic(Basic::Cpu) => "cpu",
            Resource::Basic(Basic::Memory) => "memory",
            Resource::Basic(Basic::EphemeralStorage) => "ephemeral-storage",
            Resource::Scalar(id) => self.names.get(usize::from(id)).map_or("unknown", String::as_str),
        }
    }
}

/// Whether the scheduler counts a resource that is not one of the basic four: huge pages, attachable volumes, and every
/// name with a domain. It ignores other names.
fn is_scalar(name: &str) -> bool {
    name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || (name.contains('/') && !name.starts_with("requests."))
}

fn is_gpu(name: &str) -> bool {
    GPUS.contains(&name) || name.starts_with(GPU_PARTITIONS)
}

/// An amount of each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Amounts {
    basic: [i64; 4],
    /// Sorted by id, without zeros.
    scalars: Vec<(u16, i64)>,
}

impl Amounts {
    /// The amount of `resource`.
    pub(crate) fn get(&self, resource: Resource) -> i64 {
        match resource {
            Resource::Basic(basic) => self.basic[basic as usize],
            Resource::Scalar(id) => {
                self.scalars.binary_search_by_key(&id, |s| s.0).map_or(0, |at| self.scalars[at].1)
            }
        }
    }

    /// The amounts of the basic four, for indexes.
    pub(crate) const fn basic(&self) -> [i64; 4] {
        self.basic
    }

    /// Sets the amount of `resource`.
    pub(crate) fn set(&mut self, resource: Resource, amount: i64) {
        match resource {
            Resource::Basic(basic) => self.basic[basic as usize] = amount,
            Resource::Scalar(id) => match self.scalars.binary_search_by_key(&id, |s| s.0) {
                Ok(at) if amount == 0 => {
                    self.scalars.remove(at);
                }
                Ok(at) => self.scalars[at].1 = amount,
                Err(_) if amount == 0 => {}
                Err(at) => self.scalars.insert(at, (id, amount)),
            },
        }
    }

    /// Subtracts `times` × `request`. Amounts may become negative: a node can be overcommitted.
    pub(crate) fn take(&mut self, request: &Self, times: usize) {
        let times = i64::try_from(times).unwrap_or(i64::MAX);
        for (mine, asked) in self.basic.iter_mut().zip(request.basic) {
            *mine = mine.saturating_sub(asked.saturating_mul(times));
        }
        for &(id, asked) in &request.scalars {
            let resource = Resource::Scalar(id);
            self.set(resource, self.get(resource).saturating_sub(asked.saturating_mul(times)));
        }
    }

    /// Adds `times` × `request`: the reverse of [`Self::take`].
    pub(crate) fn give(&mut self, request: &Self, times: usize) {
        let times = i64::try_from(times).unwrap_or(i64::MAX);
        for (mine, asked) in self.basic.iter_mut().zip(request.basic) {
            *mine = mine.saturating_add(asked.saturating_mul(times));
        }
        for &(id, asked) in &request.scalars {
            let resource = Resource::Scalar(id);
            self.set(resource, self.get(resource).saturating_add(asked.saturating_mul(times)));
        }
    }

    /// How many pods that each request `request` fit into these free amounts, at most `wanted`. As in the scheduler, a
    /// resource that the pod does not request never prevents a fit, however overcommitted it is.
    pub(crate) fn fits(&self, request: &Self, wanted: usize) -> usize {
        let mut fitting = i64::try_from(wanted).unwrap_or(i64::MAX);
        for (free, asked) in self.basic.iter().zip(request.basic) {
            if asked > 0 {
                fitting = fitting.min((*free).max(0) / asked);
            }
        }
        for &(id, asked) in &request.scalars {
            if asked > 0 {
                fitting = fitting.min(self.get(Resource::Scalar(id)).max(0) / asked);
            }
        }
        usize::try_from(fitting).unwrap_or(0)
    }

    /// The first resource, in the scheduler's order, that is insufficient for one pod requesting `request`.
    pub(crate) fn shortage(&self, request: &Self) -> Option<Resource> {
        let basics = Basic::ALL.into_iter().map(Resource::Basic);
        let scalars = request.scalars.iter().map(|s| Resource::Scalar(s.0));
        basics.chain(scalars).find(|&r| request.get(r) > 0 && request.get(r) > self.get(r))
    }

    /// All amounts, resource by resource.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Resource, i64)> {
        let basics = Basic::ALL.into_iter().map(|b| (Resource::Basic(b), self.basic[b as usize]));
        basics.chain(self.scalars.iter().map(|&(id, amount)| (Resource::Scalar(id), amount)))
    }

    /// The larger of the two, resource by resource.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        for (resource, amount) in other.iter() {
            self.set(resource, self.get(resource).max(amount));
        }
    }
}

/// Quantities by resource name, exact, before they are rounded to the scheduler's units.
pub(crate) type ExactAmounts = BTreeMap<String, Exact>;

/// Reads a map of quantities.
///
/// # Errors
///
/// The name of the resource and the text, for the first quantity that cannot be read or is below zero.
pub(crate) fn exact(quantities: &BTreeMap<String, Quantity>) -> Result<ExactAmounts, InvalidAmount> {
    let mut amounts = ExactAmounts::new();
    for (name, quantity) in quantities {
        let amount = Exact::parse(&quantity.0).map_err(|InvalidQuantity { text }| InvalidAmount {
            resource: name.clone(),
            text,
            problem: "is not a quantity",
        })?;
        if amount.is_negative() {
            let (resource, text) = (name.clone(), quantity.0.clone());
            return Err(InvalidAmount { resource, text, problem: "is below zero" });
        }
        amounts.insert(name.clone(), amount);
    }
    Ok(amounts)
}

/// An invalid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource} \"{text}\" {problem}")]
pub(crate) struct InvalidAmount {
    /// Name of the resource.
    pub resource: String,
    /// The quantity as it was written.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// Rounds exact amounts up to the scheduler's units.
pub(crate) fn counted(exact: &ExactAmounts, names: &mut ResourceNames) -> Amounts {
    let mut amounts = Amounts::default();
    for (name, amount) in exact {
        if let Some(resource) = names.resolve(name) {
            let rounded =
                if resource == Resource::Basic(Basic::Cpu) { amount.milli() } else { amount.units() };
            amounts.set(resource, rounded);
        }
    }
    amounts
}

/// An amount as text for users: `1500m`, `4Gi`, `3`.
pub(crate) fn display(resource: Resource, amount: i64) -> String {
    match resource {
        Resource::Basic(Basic::Cpu) if amount % 1000 == 0 => (amount / 1000).to_string(),
        Resource::Basic(Basic::Cpu) => format!("{amount}m"),
        Resource::Basic(Basic::Memory | Basic::EphemeralStorage) => {
            let units = [(1_i64 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
            let fit = units.into_iter().find(|(unit, _)| amount != 0 && amount % unit == 0);
            fit.map_or_else(|| amount.to_string(), |(unit, suffix)| format!("{}{suffix}", amount / unit))
        }
        Resource::Basic(Basic::Pods) | Resource::Scalar(_) => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(names: &mut ResourceNames, of: &[(&str, &str)]) -> Amounts {
        let map = of.iter().map(|(n, q)| ((*n).to_owned(), Quantity((*q).to_owned()))).collect();
        counted(&exact(&map).unwrap(), names)
    }

    #[test]
    fn as_many_pods_fit_as_the_scarcest_resource_allows() {
        let mut names = ResourceNames::default();
        let free =
            amounts(&mut names, &[("cpu", "2"), ("memory", "4Gi"), ("pods", "10"), ("example.com/gpu", "3")]);
        for (request, fitting) in [
            (&[("pods", "1")][..], 10),
            (&[("pods", "1"), ("cpu", "500m")], 4),
            (&[("pods", "1"), ("cpu", "1m"), ("memory", "3Gi")], 1),
            (&[("pods", "1"), ("example.com/gpu", "1")], 3),
            (&[("pods", "1"), ("example.com/tpu", "1")], 0),
        ] {
            let request = amounts(&mut names, request);
            assert_eq!(free.fits(&request, 1000), fitting, "{request:?}");
        }
    }

    #[test]
    fn an_overcommitted_resource_stops_only_those_who_ask_for_it() {
        let mut names = ResourceNames::default();
        let mut free = amounts(&mut names, &[("cpu", "1"), ("memory", "1Gi"), ("pods", "10")]);
        free.take(&amounts(&mut names, &[("cpu", "3")]), 1);
        assert_eq!(free.fits(&amounts(&mut names, &[("pods", "1"), ("memory", "512Mi")]), 9), 2);
        assert_eq!(free.shortage(&amounts(&mut names, &[("cpu", "1m")])), Some(Resource::Basic(Basic::Cpu)));
    }

    #[test]
    fn names_the_scheduler_does_not_count_are_dropped() {
        let mut names = ResourceNames::default();
        let read =
            amounts(&mut names, &[("foo", "3"), ("hugepages-2Mi", "4Mi"), ("requests.example.com/x", "1")]);
        assert_eq!(read.iter().filter(|(_, amount)| *amount != 0).count(), 1);
    }

    #[test]
    fn gpus_are_known_by_their_names() {
        for (name, is_gpu) in [
            ("nvidia.com/gpu", true),
            ("nvidia.com/mig-1g.5gb", true),
            ("amd.com/gpu", true),
            ("gpu.intel.com/i915", true),
            ("gpu.intel.com/i915_monitoring", false),
            ("example.com/gpu", false),
            ("cpu", false),
        ] {
            let mut names = ResourceNames::default();
            let one = amounts(&mut names, &[(name, "1"), ("hugepages-2Mi", "1")]);
            assert_eq!(names.gpus_of(&one).len(), usize::from(is_gpu), "{name}");
            assert!(names.gpus_of(&Amounts::default()).is_empty(), "none of {name}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        let map = BTreeMap::from([("cpu".to_owned(), Quantity("a lot".to_owned()))]);
        assert_eq!(exact(&map).unwrap_err().to_string(), "cpu \"a lot\" is not a quantity");
        let map = BTreeMap::from([("memory".to_owned(), Quantity("-1Gi".to_owned()))]);
        assert_eq!(exact(&map).unwrap_err().to_string(), "memory \"-1Gi\" is below zero");
    }

    #[test]
    fn amounts_are_shown_in_the_units_people_write() {
        for (resource, amount, shown) in [
            (Resource::Basic(Basic::Cpu), 1500, "1500m"),
            (Resource::Basic(Basic::Cpu), 2000, "2"),
            (Resource::Basic(Basic::Memory), 4 << 30, "4Gi"),
            (Resource::Basic(Basic::Memory), 1000, "1000"),
            (Resource::Basic(Basic::Memory), 0, "0"),
        ] {
            assert_eq!(display(resource, amount), shown);
        }
    }
}
