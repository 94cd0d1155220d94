//! Loops: with a load that stays the same no pool goes up and down again and again, and none grows for a pod that its nodes cannot
//! take. The planner, the plan of the `NodePool` operator and a model of kube-scheduler, over random clusters in virtual time.

mod objects;
mod operator;
mod world;

use std::collections::BTreeMap;

use shared_crds::v1alpha1::NodePoolStatus;

use self::objects::{App, Daemon, HOST, Pool, Tainted, ZONE};
use self::world::{STEP, World};

/// Virtual seconds of a cluster. What is learnt of a pool is tried anew an hour after its last node, for the first time: that is no
/// loop.
const LONG: i64 = 50 * 60;
/// Growths of one pool after it has shrunk. A first one may come from how kube-scheduler, which knows no plan, places evicted pods.
const MOST: usize = 1;

/// `SplitMix64`: clusters by number, without a dependency.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn one_in(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }

    fn among(&mut self, values: &[i64]) -> i64 {
        values[usize::try_from(self.below(u64::try_from(values.len()).unwrap())).unwrap()]
    }
}

fn pool(name: &'static str, zone: &'static str) -> Pool {
    Pool {
        name,
        zone,
        lacks: 0,
        static_pod: 0,
        gpus: 0,
        runs_after: 0,
        boots: (30, 0),
        gpu_every: 0,
        registers_itself: false,
        tainted: Tainted::Nothing,
        never_starts: false,
        agent_after: 0,
        replicas: 0,
        generation: 1,
        status: NodePoolStatus::default(),
        machines: BTreeMap::new(),
        history: Vec::new(),
    }
}

fn app(name: &str, replicas: usize, cpu: i64) -> App {
    App {
        name: name.to_owned(),
        replicas,
        cpu,
        resized: 0,
        gpus: 0,
        spread: None,
        apart: false,
        host_port: None,
        near: None,
        tolerates: false,
        budget: false,
    }
}

fn cluster(number: u64) -> World {
    let (mut random, mut machines, mut resizes) = (Random(number), Random(!number), Random(number << 32));
    let (mut devices, mut affinities) = (Random(!number << 32), Random((number << 16) | 1));
    let (mut agents, mut ports) = (Random((number << 24) | 3), Random((number << 40) | 5));
    let mut pools = Vec::new();
    for (name, zone) in [("a", "z1"), ("b", "z2"), ("c", "z1")] {
        if name == "a" || !random.one_in(3) {
            pools.push(Pool {
                lacks: random.among(&[0, 0, 100, 600]),
                static_pod: random.among(&[0, 0, 100, 500]),
                gpus: if name == "c" && random.one_in(2) { devices.among(&[1, 2, 8]) } else { 0 },
                boots: (random.among(&[15, 60, 240]), random.among(&[0, 30, 120])),
                tainted: if name == "c" && random.one_in(2) { Tainted::Template } else { Tainted::Nothing },
                replicas: i32::try_from(random.below(4)).unwrap(),
                runs_after: machines.among(&[0, 0, 60]),
                registers_itself: machines.one_in(2),
                gpu_every: devices.among(&[0, 15, 45]),
                agent_after: agents.among(&[0, 0, 0, 45, 180]),
                ..pool(name, zone)
            });
        }
    }
    let mut apps = Vec::new();
    for at in 0..=random.below(4) {
        let replicas = 1 + usize::try_from(random.below(5)).unwrap();
        let spread = match random.below(5) {
            0 => Some((HOST, random.one_in(2))),
            1 => Some((ZONE, random.one_in(2))),
            _ => None,
        };
        // Only near an app before it: two that wait for each other would wait for ever.
        let near = (at > 0 && affinities.one_in(4)).then(|| {
            let key = if affinities.one_in(2) { HOST } else { ZONE };
            (format!("app{}", affinities.below(at)), key)
        });
        apps.push(App {
            gpus: if random.one_in(5) { devices.among(&[1, 1, 2, 8]) } else { 0 },
            spread,
            apart: random.one_in(5),
            host_port: ports.one_in(4).then(|| 8080 + ports.below(2)),
            near,
            tolerates: random.one_in(2),
            budget: random.one_in(2),
            resized: resizes.among(&[0, 0, 0, 300]),
            ..app(&format!("app{at}"), replicas, random.among(&[200, 500, 900, 1700, 2600, 3300, 3800]))
        });
    }
    let said = random.among(&[0, 100, 200]);
    World::new(pools, apps, Daemon { said, real: said + random.among(&[0, 0, 100, 500]) })
}

/// The pools that went up after they had gone down, more than once.
fn loops(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for pool in &world.pools {
        let (mut fell, mut again) = (false, 0);
        for &(_, by) in &pool.history {
            again += usize::from(by > 0 && fell);
            fell = by < 0 || (fell && by == 0);
        }
        if again > MOST {
            found.push(format!("{}: {:?}", pool.name, pool.history));
        }
    }
    found
}

/// How many clusters are looked at.
fn clusters() -> u64 {
    std::env::var("TANDEM_LOOP_CLUSTERS").ok().and_then(|it| it.parse().ok()).unwrap_or(40)
}

/// How many nodes a pool was given.
fn grown(pool: &Pool) -> i32 {
    pool.history.iter().map(|&(_, by)| by.max(0)).sum()
}

fn lived(mut world: World) -> World {
    while world.now < LONG {
        world.step();
    }
    world
}

#[test]
fn with_a_load_that_stays_the_same_no_pool_goes_up_and_down_again_and_again() {
    let (mut changes, mut waiting, mut wrong) = (0, 0, Vec::new());
    let clusters = clusters();
    for number in 0..clusters {
        let world = lived(cluster(number));
        changes += world.pools.iter().map(|pool| pool.history.len()).sum::<usize>();
        waiting += world.pending();
        for pool in loops(&world) {
            wrong.push(format!("cluster {number}, {pool}\n  {:?}\n  {:?}", world.apps, world.daemon));
        }
    }
    let hours = i64::try_from(clusters).unwrap() * LONG / 3600;
    println!(
        "{clusters} clusters, {hours} virtual hours in steps of {STEP} s, {changes} changes of a pool, {waiting} pods left pending"
    );
    assert!(changes > usize::try_from(clusters).unwrap(), "nothing happens in these clusters");
    assert!(wrong.is_empty(), "{} loops:\n{}", wrong.len(), wrong.join("\n"));
}

/// How many nodes came for one pod that needs one: where the operator makes the Nodes, and where machines do.
fn came_for_one(pool: &Pool, app: &App, daemon: Daemon) -> [i32; 2] {
    [false, true].map(|registers_itself| {
        let (pool, app) = (Pool { registers_itself, ..pool.clone() }, App { replicas: 1, ..app.clone() });
        let world = lived(World::new(vec![pool], vec![app], daemon));
        grown(&world.pools[0])
    })
}

#[test]
fn one_pod_makes_one_node_come() {
    let none = Daemon { said: 0, real: 0 };
    // A GPU that its plugin registers two minutes after the node is Ready.
    let late = Pool { gpus: 1, boots: (30, 120), ..pool("gpu", "z1") };
    assert_eq!(came_for_one(&late, &App { gpus: 1, ..app("train", 1, 500) }, none), [1, 1]);
    // Eight that come one after the other, for a pod that needs them all.
    let slow = Pool { gpus: 8, gpu_every: 45, ..late };
    assert_eq!(came_for_one(&slow, &App { gpus: 8, ..app("train", 1, 500) }, none), [1, 1]);
    // Pods that its real nodes do not take, because of static pods, of daemons that ask for more than is said, or of a kernel that
    // takes its part: the first node is wrong, and no other one comes.
    for (pool, daemon) in [
        (Pool { static_pod: 600, ..pool("static", "z1") }, none),
        (pool("admission", "z1"), Daemon { said: 0, real: 600 }),
        (Pool { lacks: 600, ..pool("kernel", "z1") }, none),
    ] {
        assert_eq!(came_for_one(&pool, &app("large", 1, 3600), daemon), [1, 1], "{}", pool.name);
    }
}

#[test]
fn gpus_that_never_come_make_a_second_node_come_and_no_third() {
    let none = Daemon { said: 0, real: 0 };
    // No GPU at all, and the first of eight only.
    for (gpus, boots, gpu_every) in [(1, (30, 2 * LONG), 0), (8, (30, 0), 2 * LONG)] {
        let broken = Pool { gpus, boots, gpu_every, ..pool("gpu", "z1") };
        assert_eq!(came_for_one(&broken, &App { gpus, ..app("train", 1, 500) }, none), [2, 2], "{gpus}");
    }
}

#[test]
fn a_startup_taint_that_is_never_removed_makes_one_node_come_and_no_second() {
    let broken = Pool { never_starts: true, ..pool("agentless", "z1") };
    assert_eq!(came_for_one(&broken, &app("web", 1, 500), Daemon { said: 0, real: 0 }), [1, 1]);
}

#[test]
fn a_startup_taint_that_an_agent_removes_makes_one_node_come() {
    let none = Daemon { said: 0, real: 0 };
    for (boots, agent_after) in [((30, 0), 180), ((240, 0), 300)] {
        let late = Pool { boots, agent_after, ..pool("agents", "z1") };
        assert_eq!(came_for_one(&late, &app("web", 1, 500), none), [1, 1], "{boots:?} {agent_after}");
        let world = lived(World::new(vec![late], vec![app("web", 1, 500)], none));
        assert_eq!(world.pending(), 0, "the agent lets the pod in");
    }
}

#[test]
fn pods_with_one_host_port_bring_a_node_each_and_those_with_another_share_them() {
    for (other, expected) in [(8081, 2), (8080, 4)] {
        let web = App { host_port: Some(8080), ..app("web", 2, 200) };
        let proxy = App { host_port: Some(other), ..app("proxy", 2, 200) };
        let none = Daemon { said: 0, real: 0 };
        let world = lived(World::new(vec![pool("a", "z1")], vec![web, proxy], none));
        assert_eq!((grown(&world.pools[0]), world.pending()), (expected, 0), "{other}");
    }
}

#[test]
fn a_taint_that_no_template_names_makes_a_second_node_come_and_no_third() {
    let none = Daemon { said: 0, real: 0 };
    for boots in [(15, 0), (240, 0)] {
        let tainted = Pool { tainted: Tainted::Kubelets, boots, ..pool("tainted", "z1") };
        assert_eq!(came_for_one(&tainted, &app("web", 1, 500), none), [2, 2], "{boots:?}");
        let tolerant = App { tolerates: true, ..app("web", 1, 500) };
        assert_eq!(came_for_one(&tainted, &tolerant, none), [1, 1], "{boots:?}");
    }
}

#[test]
fn nodes_with_a_taint_that_no_template_names_go_although_a_pod_waits_that_does_not_tolerate_it() {
    let tainted = Pool { tainted: Tainted::Kubelets, ..pool("tainted", "z1") };
    let world = lived(World::new(vec![tainted], vec![app("web", 1, 500)], Daemon { said: 0, real: 0 }));
    assert_eq!((world.hosts.len(), world.pending(), grown(&world.pools[0])), (0, 1, 2));
}

/// The most nodes that come in a day for a pod that none of them takes: one or two at first, and one more after one hour, two, four
/// and eight.
const MOST_A_DAY: usize = 6;

/// The cluster after a day. While there is no node, only time passes.
fn lived_a_day(mut world: World) -> World {
    while world.now < 24 * 3600 {
        let is_idle = world.hosts.is_empty()
            && world.pools.iter().all(|pool| pool.replicas == 0 && pool.machines.is_empty());
        if is_idle && world.now > STEP {
            world.now += 600 - STEP;
        }
        world.step();
    }
    world
}

#[test]
fn a_pod_that_no_node_takes_has_ever_fewer_of_them_tried_for_it() {
    let none = Daemon { said: 0, real: 0 };
    let web = || app("web", 1, 500);
    for (pool, app, daemon) in [
        (Pool { lacks: 600, ..pool("kernel", "z1") }, app("large", 1, 3600), none),
        (Pool { static_pod: 600, ..pool("static", "z1") }, app("large", 1, 3600), none),
        (pool("admission", "z1"), app("large", 1, 3600), Daemon { said: 0, real: 600 }),
        (Pool { gpus: 1, boots: (30, 48 * 3600), ..pool("gpu", "z1") }, App { gpus: 1, ..web() }, none),
        (Pool { never_starts: true, ..pool("agentless", "z1") }, web(), none),
        (Pool { tainted: Tainted::Kubelets, ..pool("tainted", "z1") }, web(), none),
    ] {
        let world = lived_a_day(World::new(vec![pool], vec![app], daemon));
        let history = &world.pools[0].history;
        let growths = history.iter().filter(|&&(_, by)| by > 0).count();
        assert!((4..=MOST_A_DAY).contains(&growths), "{}: {history:?}", world.pools[0].name);
    }
}

#[test]
fn no_pool_grows_twice_for_one_pod() {
    for number in 0..clusters() {
        let mut world = cluster(number);
        world.apps.truncate(1);
        world.apps[0].replicas = 1;
        world.pools.iter_mut().for_each(|pool| pool.replicas = 0);
        let world = lived(world);
        let twice: Vec<_> = world.pools.iter().filter(|pool| grown(pool) > 1).collect();
        assert!(twice.is_empty(), "cluster {number}: {twice:#?}\n  {:?}\n  {:?}", world.apps, world.daemon);
    }
}

#[test]
fn a_node_that_is_drained_under_a_spread_does_not_come_back() {
    for (honor, expected) in [(false, 0), (true, 0)] {
        let pool = Pool { replicas: 3, ..pool("a", "z1") };
        let spread = App { spread: Some((HOST, honor)), ..app("s", 3, 500) };
        let world = lived(World::new(vec![pool], vec![spread], Daemon { said: 0, real: 0 }));
        assert_eq!(
            grown(&world.pools[0]),
            expected,
            "nodeTaintsPolicy Honor: {honor}: {:?}",
            world.pools[0].history
        );
    }
}

#[test]
fn a_pod_that_has_to_be_near_another_brings_a_node_where_that_is_near() {
    // On the full node of the other there is no room, and a new node is another host in the same zone.
    for (key, expected) in [(HOST, 1), (ZONE, 2)] {
        let second = App { near: Some(("first".to_owned(), key)), ..app("second", 1, 500) };
        let (pools, apps) = (vec![pool("a", "z1")], vec![app("first", 1, 3800), second]);
        let world = lived(World::new(pools, apps, Daemon { said: 0, real: 0 }));
        assert_eq!(grown(&world.pools[0]), expected, "{key}: {:?}", world.pools[0].history);
    }
}
