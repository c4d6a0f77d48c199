//! The history's file: damaged, foreign, in use, or cut off by a crash, nothing is lost unseen.
#![cfg(feature = "probe")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use rollrace::{
    engine::{Config, History, State},
    history::{Found, HistoryError, HistoryFile},
};

/// An empty folder that no other test uses.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("history").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    folder
}

fn history(node: &str) -> History {
    State::new(Config::new(node)).history()
}

/// A folder in which an agent of `n1` has left its history.
fn left(name: &str) -> PathBuf {
    let folder = folder(name);
    let (file, found) = HistoryFile::open(&folder, "n1").unwrap();
    assert!(matches!(found, Found::Nothing));
    let size = file.write(&history("n1")).unwrap();
    assert_eq!(size, fs::metadata(file.path()).unwrap().len());
    folder
}

/// Changes the file; what the next agent finds is set aside, and why.
fn spoilt(name: &str, spoil: impl FnOnce(String) -> String, node: &str) -> String {
    let folder = left(name);
    let path = folder.join("history.json");
    let content = spoil(fs::read_to_string(&path).unwrap());
    fs::write(&path, &content).unwrap();
    let (file, found) = HistoryFile::open(&folder, node).unwrap();
    let Found::SetAside { to, why } = found else { panic!("{found:?}") };
    assert_eq!(fs::read_to_string(&to).unwrap(), content, "it is kept as it was");
    file.write(&history(node)).unwrap();
    drop(file);
    assert!(matches!(HistoryFile::open(&folder, node).unwrap().1, Found::Left(_)));
    why
}

#[test]
fn what_one_agent_leaves_the_next_finds() {
    let folder = left("left");
    let (_, found) = HistoryFile::open(&folder, "n1").unwrap();
    let Found::Left(recalled) = found else { panic!("{found:?}") };
    assert!(recalled.same_boot);
    assert_eq!(recalled.history, history("n1"));
}

#[test]
fn a_damaged_file_is_set_aside_and_said_to_be_damaged() {
    let why = spoilt("damaged", |text| text[..text.len() / 2].to_owned(), "n1");
    assert!(why.contains("damaged"), "{why}");
    let why = spoilt("empty", |_| String::new(), "n1");
    assert!(why.contains("damaged"), "{why}");
}

#[test]
fn a_file_of_another_format_is_set_aside_and_both_formats_are_named() {
    let newer = |text: String| text.replace("\"rollrace_history\":1", "\"rollrace_history\":9");
    let why = spoilt("format", newer, "n1");
    assert!(why.contains("format 9") && why.contains("reads 1"), "{why}");
}

#[test]
fn a_file_of_another_node_is_set_aside_and_that_node_is_named() {
    let why = spoilt("node", |text| text, "n2");
    assert!(why.contains("node n1"), "{why}");
}

#[test]
fn another_boot_is_told_from_this_one() {
    let folder = left("boot");
    let path = folder.join("history.json");
    let mut content: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    content["boot"] = "another".into();
    fs::write(&path, content.to_string()).unwrap();
    let (_, found) = HistoryFile::open(&folder, "n1").unwrap();
    assert!(matches!(found, Found::Left(recalled) if !recalled.same_boot));
}

#[test]
fn two_agents_do_not_share_a_folder() {
    let folder = folder("shared");
    let _held = HistoryFile::open(&folder, "n1").unwrap();
    let error = HistoryFile::open(&folder, "n1").unwrap_err();
    assert!(matches!(error, HistoryError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("--state-dir"), "{error}");
}

#[test]
fn a_crash_while_it_is_written_leaves_the_one_before() {
    let folder = left("crash");
    fs::write(folder.join("history.json.new"), "{\"rollrace_hist").unwrap();
    assert!(matches!(HistoryFile::open(&folder, "n1").unwrap().1, Found::Left(_)));
}

#[test]
fn a_folder_that_cannot_be_used_is_named_with_the_remedy() {
    let error = HistoryFile::open(Path::new("/proc/rollrace"), "n1").unwrap_err();
    let text = format!("{:#}", anyhow::Error::from(error));
    assert!(text.contains("/proc/rollrace") && text.contains("--state-dir"), "{text}");
}
