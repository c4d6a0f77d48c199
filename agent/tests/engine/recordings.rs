//! Inputs written down and read back.

use std::{fs, io::Write as _, path::PathBuf};

use rollrace::{
    engine::{Config, Input, State, step},
    record::{RecordError, Recorder, Recording},
};

use crate::world::World;

/// A file that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let file = format!("rollrace-{}-{name}.jsonl", std::process::id());
        Self(std::env::temp_dir().join(file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may not have been made.
        let _ = fs::remove_file(&self.0);
    }
}

/// All outputs, in the form in which they are told.
pub fn outputs(inputs: &[Input]) -> String {
    let mut state = State::new(Config::new("n1"));
    let lines: Vec<String> = inputs
        .iter()
        .map(|input| serde_json::to_string(&step(&mut state, input.clone())).unwrap())
        .collect();
    lines.join("\n")
}

/// Writes inputs down and reads them back.
pub fn written_and_read(inputs: &[Input], name: &str) -> Recording {
    let scratch = Scratch::new(name);
    write(inputs, &scratch);
    Recording::read(&scratch.0).unwrap()
}

fn write(inputs: &[Input], scratch: &Scratch) {
    let mut recorder = Recorder::create(&scratch.0, &Config::new("n1")).unwrap();
    for input in inputs {
        recorder.input(input).unwrap();
    }
    recorder.flush().unwrap();
}

fn a_rollout() -> Vec<Input> {
    let mut world = World::rolling();
    world.refused("old-a");
    world.timed_out("old-a");
    world.pass(40_000);
    world.inputs
}

#[test]
fn a_recording_cut_off_anywhere_is_used_as_far_as_it_is_whole() {
    let inputs = a_rollout();
    let scratch = Scratch::new("cut-off");
    write(&inputs, &scratch);
    let whole = fs::read(&scratch.0).unwrap();
    let header = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for length in (header..whole.len()).step_by(97) {
        fs::write(&scratch.0, &whole[..length]).unwrap();
        let recording = Recording::read(&scratch.0).unwrap();
        let lines = whole[header..length].split(|byte| *byte == b'\n').count() - 1;
        // The last line may be whole but for its end.
        let read = recording.inputs.len();
        assert!(read == lines || read == lines + 1, "{read} of {lines}");
        assert_eq!(recording.inputs, inputs[..read]);
        let at_an_end = read == lines + 1 || whole[length - 1] == b'\n';
        assert_eq!(recording.cut_off_at, (!at_an_end).then_some(lines + 2));
    }
}

#[test]
fn a_recording_cut_off_within_a_character_is_used_as_far_as_it_is_whole() {
    let inputs = a_rollout();
    let scratch = Scratch::new("character");
    write(&inputs, &scratch);
    let mut file = fs::OpenOptions::new().append(true).open(&scratch.0).unwrap();
    file.write_all(b"{\"at\":1,\"input\":\"\xc3").unwrap();
    let recording = Recording::read(&scratch.0).unwrap();
    assert_eq!(recording.inputs, inputs);
    assert_eq!(recording.cut_off_at, Some(inputs.len() + 2));
}

#[test]
fn a_recording_of_another_version_is_named_as_such_whatever_its_header_holds() {
    let scratch = Scratch::new("version");
    fs::write(&scratch.0, "{\"rollrace_recording\":99,\"settings\":{}}\n").unwrap();
    let error = Recording::read(&scratch.0).unwrap_err();
    assert!(matches!(error, RecordError::Version { found: 99, .. }), "{error}");
    fs::write(&scratch.0, "hello\n").unwrap();
    let error = Recording::read(&scratch.0).unwrap_err();
    assert!(matches!(error, RecordError::NotARecording { .. }), "{error}");
}

#[test]
fn a_replay_gives_the_same_to_the_byte() {
    let inputs = a_rollout();
    let recording = written_and_read(&inputs, "replay");
    assert_eq!(recording.inputs, inputs);
    assert_eq!(outputs(&recording.inputs), outputs(&inputs));
}
