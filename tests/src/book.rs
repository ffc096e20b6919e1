//! Runs the commands that a document shows, and compares their output with the document's.
//!
//! A document has fixed ports, lease ids and times. [`Shell`] replaces ports before it runs a command. It compares ids by
//! their order, and times and durations by their form only.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use uuid::Uuid;

use crate::server::binary;

/// The home directory of the documents' reader.
const HOME: &str = "/home/alex";

/// Reads commands that end in NUL from its input, runs each without input, and writes a line with its exit code.
const LOOP: &str =
    r#"exec 2>&1; while IFS= read -r -d '' command; do eval "$command" </dev/null; printf '\nexit %s\n' $?; done"#;

/// The text of a document, by its path from the repository's root.
///
/// # Errors
/// The file cannot be read.
pub fn document(path: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The contents of a document's fenced blocks of this language, in order.
#[must_use]
pub fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("\n```{language}\n");
    text.split(&opening).skip(1).filter_map(|rest| Some(format!("{}\n", rest.split_once("\n```")?.0))).collect()
}

/// A command that a document shows, and the output that it shows below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The command, without the prompt.
    pub command: String,
    /// The lines of the output.
    pub output: String,
}

/// The commands of all `console` blocks of a document, in order.
#[must_use]
pub fn examples(text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for line in blocks(text, "console").concat().lines() {
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (Some(command), _) => examples.push(Example { command: command.to_owned(), output: String::new() }),
            (None, Some(example)) => example.output += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    examples
}

/// The ids of a text in the order in which they first appear.
#[derive(Clone, Debug, Default)]
struct Ids(Vec<String>);

impl Ids {
    /// Replaces each id by its position, and each time and duration by a word. Spaces at the end of a line are dropped.
    fn normalize(&mut self, text: &str) -> String {
        text.trim_end().lines().fold(String::new(), |text, line| text + &self.normalize_line(line) + "\n")
    }

    fn normalize_line(&mut self, line: &str) -> String {
        let mut words: Vec<&str> = line.trim_end().split(' ').collect();
        // The server suggests another delay each time, so that many clients do not come back at once.
        let units: Vec<bool> = words.iter().skip(1).map(|word| *word == "ms").collect();
        for (word, is_before_unit) in words.iter_mut().zip(units) {
            if is_before_unit && word.bytes().all(|byte| byte.is_ascii_digit()) {
                *word = "<number>";
            }
        }
        words.into_iter().map(|word| self.normalize_word(word)).collect::<Vec<_>>().join(" ")
    }

    fn normalize_word(&mut self, word: &str) -> String {
        if is_time(word) {
            return "<time>".to_owned();
        }
        if word.len() != 36 || Uuid::try_parse(word).is_err() {
            return word.to_owned();
        }
        let known = self.0.iter().position(|id| id == word);
        let position = known.unwrap_or_else(|| {
            self.0.push(word.to_owned());
            self.0.len() - 1
        });
        format!("<id {position}>")
    }
}

/// True if a word looks like `2026-11-21T16:40:25.73221Z`.
fn is_time(word: &str) -> bool {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    word.ends_with('Z') && word.contains('T') && word.contains(':') && digits >= 14
}

/// A running server. Its output stays open, since the server would fail to write into a closed pipe.
#[derive(Debug)]
struct Process {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// A shell in an empty directory, with the server's binary on its path. A document's commands run in it one after the
/// other. It and its servers are killed when it is dropped.
#[derive(Debug)]
pub struct Shell {
    bash: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    servers: Vec<Process>,
    ports: Vec<(u16, u16)>,
    shown: Ids,
    actual: Ids,
    directory: TempDir,
}

impl Shell {
    /// Starts a shell.
    ///
    /// # Errors
    /// The binary does not build, or bash cannot be run.
    pub fn start() -> Result<Self> {
        let directory = TempDir::new()?;
        fs::create_dir(directory.path().join("bin"))?;
        symlink(binary()?, directory.path().join("bin/leasehold"))?;
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc", "-c", LOOP]).current_dir(directory.path());
        set_environment(&mut bash, directory.path());
        let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("bash cannot be run")?;
        let input = bash.stdin.take().context("bash has no input")?;
        let output = BufReader::new(bash.stdout.take().context("bash has no output")?);
        let (servers, ports) = (Vec::new(), Vec::new());
        Ok(Self { bash, input, output, servers, ports, shown: Ids::default(), actual: Ids::default(), directory })
    }

    /// The directory in which the commands run.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Uses `actual` wherever a document has the port `shown`.
    pub fn replace_port(&mut self, shown: u16, actual: u16) {
        self.ports.push((shown, actual));
    }

    /// Runs a command that must succeed, and returns its output.
    ///
    /// # Errors
    /// The command fails; the error has its output.
    pub fn run(&mut self, command: &str) -> Result<String> {
        let (code, output) = self.execute(command)?;
        ensure!(code == 0, "`{command}` ended with the exit code {code}:\n{output}");
        Ok(output)
    }

    /// Starts the server of a command, on a free port that replaces `port`. Returns the lines that it has printed.
    ///
    /// # Errors
    /// The server ends before it listens; the error has its output.
    pub fn serve(&mut self, command: &str, port: u16) -> Result<String> {
        // `exec` makes the child the server, not a shell that would survive its end.
        let exec = format!("exec {}", command.replace(&format!(":{port}"), ":0"));
        let mut server = Command::new("bash");
        server.args(["--noprofile", "--norc", "-c", &exec]).current_dir(self.directory());
        set_environment(&mut server, self.directory());
        server.env("LEASEHOLD_LISTEN", "127.0.0.1:0").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = server.spawn().context("bash cannot be run")?;
        let output = BufReader::new(process.stdout.take().context("the server has no output")?);
        self.servers.push(Process { process, output });
        let banner = self.servers.last_mut().map(|server| read_banner(&mut server.output)).context("no server")??;
        let (_, rest) = banner.split_once("listening on 127.0.0.1:").context("no address of the loopback")?;
        let actual: String = rest.chars().take_while(char::is_ascii_digit).collect();
        self.replace_port(port, actual.parse()?);
        Ok(self.as_shown(&banner))
    }

    /// Stops the servers, and waits for their end.
    ///
    /// # Errors
    /// A server cannot be stopped.
    pub fn stop_servers(&mut self) -> Result<()> {
        for Process { mut process, .. } in self.servers.drain(..) {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Runs an example and compares its output.
    ///
    /// # Errors
    /// The output differs, or the shell has ended.
    pub fn compare(&mut self, example: &Example) -> Result<()> {
        let (_, output) = self.execute(&self.as_actual(&example.command))?;
        self.compare_output(&example.command, &example.output, &self.as_shown(&output))
    }

    /// Compares the output of a command with the document's.
    ///
    /// # Errors
    /// The two differ.
    pub fn compare_output(&mut self, command: &str, shown: &str, actual: &str) -> Result<()> {
        let shown = self.shown.normalize(shown);
        let normalized = self.actual.normalize(actual);
        ensure!(shown == normalized, "`{command}` printed\n{actual}\nnormalized\n{normalized}\nand not\n{shown}");
        Ok(())
    }

    /// Replaces a document's ports and ids by those of this run.
    #[must_use]
    pub fn as_actual(&self, text: &str) -> String {
        let ports = self
            .ports
            .iter()
            .fold(text.to_owned(), |text, (shown, actual)| text.replace(&format!(":{shown}"), &format!(":{actual}")));
        self.shown.0.iter().zip(&self.actual.0).fold(ports, |text, (shown, actual)| text.replace(shown, actual))
    }

    /// Replaces this run's ports and home directory by those of the document.
    fn as_shown(&self, text: &str) -> String {
        let home = text.replace(&self.directory().display().to_string(), HOME);
        let ports = self.ports.iter().rev();
        ports.fold(home, |text, (shown, actual)| text.replace(&format!(":{actual}"), &format!(":{shown}")))
    }

    fn execute(&mut self, command: &str) -> Result<(i32, String)> {
        self.input.write_all(command.as_bytes())?;
        self.input.write_all(b"\0")?;
        self.input.flush()?;
        let mut output = String::new();
        loop {
            let mut line = String::new();
            ensure!(self.output.read_line(&mut line)? > 0, "the shell ended at `{command}`:\n{output}");
            if let Some(code) = line.strip_prefix("exit ") {
                // The loop's own line break stands before its line.
                output.pop();
                return Ok((code.trim().parse()?, output));
            }
            output += &line;
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Best effort: a process that has ended needs no more.
        let servers = self.servers.iter_mut().map(|server| &mut server.process);
        for process in servers.chain([&mut self.bash]) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Gives a command the home directory and the binary of a shell, and no setting of the person who runs the tests.
fn set_environment(command: &mut Command, directory: &Path) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEHOLD_")) {
        command.env_remove(name);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", directory.join("bin").display()));
    command.env("HOME", directory).env_remove("XDG_STATE_HOME");
}

/// Reads the banner of a server, up to its last line, which proposes a command.
fn read_banner(output: &mut impl BufRead) -> Result<String> {
    let mut banner = String::new();
    while !banner.lines().any(|line| line.starts_with("try: ")) {
        ensure!(output.read_line(&mut banner)? > 0, "the server ended:\n{banner}");
    }
    Ok(banner)
}
