//! What explain says of each rule's own application, from the recordings of a lab in which a dozen of
//! them rolled out at once (`cargo xtask lab rules`).

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use flate2::read::GzDecoder;
use rollrace::oncall::{Asked, Source, explained, gather};

use crate::golden::{data, golden};

/// The applications, each wrong in its own way, and the rules that it is there for.
const APPS: [(&str, &[&str]); 12] = [
    ("naive", &["no_readiness"]),
    ("early", &["ready_too_early"]),
    ("plain", &["no_prestop", "keepalive_cut", "other_cause"]),
    ("short", &["short_prestop"]),
    ("over-grace", &["prestop_over_grace"]),
    ("cut-short", &["grace_truncates"]),
    ("deaf", &["ignores_sigterm"]),
    ("kept", &["nothing_wrong"]),
    ("recreate", &["outage_by_design"]),
    ("published", &["published_not_ready"]),
    ("bad", &["bad_replica"]),
    ("slow", &["slow_node", "stale_tail"]),
];

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn unpacked(folder: &Path, node: &str) -> PathBuf {
    let packed = File::open(data(&format!("rules/{node}.jsonl.gz"))).expect("the recording");
    let path = folder.join(format!("{node}.jsonl"));
    let mut file = File::create(&path).expect("a file");
    std::io::copy(&mut GzDecoder::new(packed), &mut file).expect("unpack the recording");
    path
}

#[tokio::test]
async fn each_application_is_explained_as_it_was_in_the_lab() {
    let folder = std::env::temp_dir().join(format!("rollrace-rules-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let folder = Folder(folder);
    let recordings = ["n1", "n2"].map(|node| unpacked(&folder.0, node));
    let asked =
        Asked { rollouts: Some(String::new()), failures: Some(String::new()), ..Asked::default() };
    let gathered = gather(&Source::Recordings(recordings.into()), &asked, Duration::ZERO)
        .await
        .expect("the recordings can be read");
    for (app, rules) in APPS {
        let mut rollouts = gathered.answered.iter().flat_map(|one| &one.rollouts.rollouts);
        let known = rollouts.find(|rollout| rollout.name == app).expect("its rollout");
        let text = explained(&gathered, &known.id).expect("it is known").text;
        for rule in rules {
            assert!(text.contains(&format!("[{rule}]")), "{rule} is not found in {app}: {text}");
        }
        golden(&format!("rules/{app}.txt"), &text);
    }
}
