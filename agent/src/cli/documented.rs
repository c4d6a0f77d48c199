//! Every command line that documents show is one that the command line takes.

use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, error::ErrorKind};

use super::Cli;

/// A command as a document has it.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    words: Vec<String>,
    /// In running text a command may stand without what it is about.
    inline: bool,
}

/// What begins a command, in a shell or in running text.
const PROGRAMS: [&str; 2] = ["kubectl rollrace ", "rollrace "];
/// What ends one.
const ENDS: [&str; 6] = ["|", "#", ">", ";", "&&", "<"];

/// The commands of a line of a shell, or of a piece of code in running text.
fn command(code: &str, inline: bool) -> Option<Shown> {
    let code = code.trim().trim_start_matches("$ ");
    let arguments = PROGRAMS.iter().find_map(|program| code.strip_prefix(program))?;
    let words = arguments.split_whitespace().take_while(|word| !ENDS.contains(word));
    let words = std::iter::once("rollrace").chain(words).map(str::to_owned).collect();
    Some(Shown { words, inline })
}

/// Every command in a document: Markdown, or any text that quotes code as Markdown does.
fn commands(text: &str) -> Vec<Shown> {
    let joined = text.replace("\\\n", " ");
    let mut found = Vec::new();
    let mut prose = String::new();
    let mut is_fenced = false;
    for line in joined.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if let Some(shown) =
            command(line, false).filter(|_| is_fenced || line.starts_with(' '))
        {
            found.push(shown);
        } else if !is_fenced {
            prose.push_str(line.trim_start());
            prose.push(' ');
        }
    }
    found.extend(prose.split('`').skip(1).step_by(2).filter_map(|code| command(code, true)));
    found
}

/// Options that running text quotes alone: `--evict-stale on`.
fn options(text: &str) -> Vec<String> {
    let quoted = text.split('`').filter(|code| code.starts_with("--"));
    quoted.filter_map(|code| code[2..].split([' ', '=', ',']).next()).map(str::to_owned).collect()
}

/// What is wrong with it; `None`: it is one.
fn objection(shown: &Shown) -> Option<String> {
    let error = Cli::command().try_get_matches_from(&shown.words).err()?;
    let is_fine = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument => shown.inline,
        _ => false,
    };
    (!is_fine).then(|| format!("{}: {error}", shown.words.join(" ")))
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the agent's folder is in it")
}

/// The documents: those at the top, and everything that is deployed or read by those who deploy it.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![repository().join("deploy")];
    let top = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];
    let mut files: Vec<PathBuf> = top.iter().map(|name| repository().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a text");
        found.push((path, text));
    }
    found
}

#[test]
fn every_command_in_the_documents_is_one() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, text) in documents() {
        for shown in commands(&text) {
            seen += 1;
            wrong.extend(objection(&shown).map(|why| format!("{}: {why}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 25, "only {seen} commands were found");
}

#[test]
fn every_runbook_uses_the_command_line() {
    for (path, text) in documents() {
        if path.parent().is_some_and(|folder| folder.ends_with("runbooks")) {
            assert!(!commands(&text).is_empty(), "{} names no command", path.display());
        }
    }
}

#[test]
fn every_option_that_readers_are_told_of_is_one() {
    let cli = Cli::command();
    let own: Vec<&str> = cli
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .filter_map(clap::Arg::get_long)
        .collect();
    let mut seen = 0;
    for (path, text) in documents() {
        // Those for developers speak of other programs' options, too.
        let is_for_users = path.extension().is_some_and(|extension| extension == "md")
            && !path.ends_with("ARCHITECTURE.md")
            && !path.ends_with("CONTRIBUTING.md");
        if is_for_users {
            for option in options(&text) {
                seen += 1;
                assert!(own.contains(&&*option), "{}: there is no --{option}", path.display());
            }
        }
    }
    assert!(seen >= 10, "only {seen} options were found");
}

#[test]
fn a_command_that_there_is_not_is_found() {
    let text = "Ask `kubectl rollrace\nexplian deployment/api`, or `rollrace explain`.\n\n```\n\
                $ kubectl rollrace report --no-such # why\nrollrace explain\nkubectl get pods\n```\n";
    let found = commands(text);
    assert_eq!(found.len(), 4, "{found:?}");
    let wrong: Vec<bool> = found.iter().map(|shown| objection(shown).is_some()).collect();
    // Fenced ones come first: an unknown option, one without its argument; then those in the text.
    assert_eq!(wrong, [true, true, true, false], "{found:?}");
}
