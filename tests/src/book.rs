//! Runs the commands that a document (the README or a chapter of the book) shows, and compares
//! their output with the document.
//!
//! A document has fixed ports, lease ids and times; a test run has others. [`Shell`] replaces a
//! document's ports in each command before it runs the command. Ids are compared by the order of
//! their first appearance, times and durations only by their form.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use uuid::Uuid;

use crate::server::binary;

/// The home directory that the documents show. Before a comparison, this path replaces the shell's
/// temporary directory in the output.
const HOME: &str = "/home/alex";

/// A bash script: runs each NUL-terminated command of its standard input, without input for the
/// command, and prints `exit CODE` after each.
const LOOP: &str =
    r#"exec 2>&1; while IFS= read -r -d '' command; do eval "$command" </dev/null; printf '\nexit %s\n' $?; done"#;

/// Returns the text of a document. `path` is relative to the repository's root.
///
/// # Errors
/// The file cannot be read.
pub fn document(path: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the contents of the fenced code blocks of `language` in a Markdown text, in order.
#[must_use]
pub fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("\n```{language}\n");
    text.split(&opening).skip(1).filter_map(|rest| Some(format!("{}\n", rest.split_once("\n```")?.0))).collect()
}

/// One command of a document, and the output that the document shows below the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The shell command of the example, without the prompt `$ `.
    pub command: String,
    /// The output that the document shows for the command, all lines in one text.
    pub output: String,
}

/// Returns the commands and outputs of all `console` blocks in a Markdown text, in order.
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

/// The ids found in a text so far, in the order of their first appearance.
#[derive(Clone, Debug, Default)]
struct Ids(Vec<String>);

impl Ids {
    /// Returns the text with each id replaced by its number, and each time and count of
    /// milliseconds by a placeholder. Spaces at the end of a line are dropped.
    fn normalize(&mut self, text: &str) -> String {
        text.trim_end().lines().fold(String::new(), |text, line| text + &self.normalize_line(line) + "\n")
    }

    fn normalize_line(&mut self, line: &str) -> String {
        let mut words: Vec<&str> = line.trim_end().split(' ').collect();
        // A delay that the server suggests is random, to spread the retries of many clients, so its
        // number is not compared.
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

/// True if the word looks like a time in UTC, such as `2026-11-21T16:40:25.73221Z`.
fn is_time(word: &str) -> bool {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    word.ends_with('Z') && word.contains('T') && word.contains(':') && digits >= 14
}

/// A running server process. Its output pipe stays open, because the server fails if it writes to a
/// closed pipe.
#[derive(Debug)]
struct Process {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// A shell in a temporary directory, with the `leasehold` binary on its `PATH`. The commands of a
/// document run in the shell one after the other. Dropping the shell kills it and its servers.
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
    /// Starts the shell in a new, empty directory.
    ///
    /// # Errors
    /// The `leasehold` binary does not build, or bash cannot be run.
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

    /// Returns the directory in which the shell runs its commands.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Replaces the port `shown` of a document by the port `actual` in all commands from now on.
    pub fn replace_port(&mut self, shown: u16, actual: u16) {
        self.ports.push((shown, actual));
    }

    /// Runs a command in the shell. Returns the command's output.
    ///
    /// # Errors
    /// The command fails; the error contains its output.
    pub fn run(&mut self, command: &str) -> Result<String> {
        let (code, output) = self.execute(command)?;
        ensure!(code == 0, "`{command}` ended with the exit code {code}:\n{output}");
        Ok(output)
    }

    /// Starts the server of a document's command on a free port, which replaces the document's
    /// `port`. Returns the lines that the server prints at its start.
    ///
    /// # Errors
    /// The server ends before it listens; the error contains its output.
    pub fn serve(&mut self, command: &str, port: u16) -> Result<String> {
        // With `exec` the server replaces bash as the child process, so killing the child ends the
        // server.
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

    /// Kills the servers of this shell, and waits until their processes have ended.
    ///
    /// # Errors
    /// A server cannot be killed.
    pub fn stop_servers(&mut self) -> Result<()> {
        for Process { mut process, .. } in self.servers.drain(..) {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Runs the command of an example, and compares its output with the document's.
    ///
    /// # Errors
    /// The output differs, or the shell has ended.
    pub fn compare(&mut self, example: &Example) -> Result<()> {
        let (_, output) = self.execute(&self.as_actual(&example.command))?;
        self.compare_output(&example.command, &example.output, &self.as_shown(&output))
    }

    /// Compares the actual output of `command` with the output `shown` by the document.
    ///
    /// # Errors
    /// The two outputs differ.
    pub fn compare_output(&mut self, command: &str, shown: &str, actual: &str) -> Result<()> {
        let shown = self.shown.normalize(shown);
        let normalized = self.actual.normalize(actual);
        ensure!(shown == normalized, "`{command}` printed\n{actual}\nnormalized\n{normalized}\nand not\n{shown}");
        Ok(())
    }

    /// Returns a document's text with its ports and ids replaced by those of this test run.
    #[must_use]
    pub fn as_actual(&self, text: &str) -> String {
        let ports = self
            .ports
            .iter()
            .fold(text.to_owned(), |text, (shown, actual)| text.replace(&format!(":{shown}"), &format!(":{actual}")));
        self.shown.0.iter().zip(&self.actual.0).fold(ports, |text, (shown, actual)| text.replace(shown, actual))
    }

    /// Returns an output of this run with its ports and home directory replaced by those of the
    /// document.
    #[must_use]
    pub fn as_shown(&self, text: &str) -> String {
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
                // The script prints a line break before `exit CODE`; it does not belong to the
                // command's output.
                output.pop();
                return Ok((code.trim().parse()?, output));
            }
            output += &line;
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Errors are ignored: killing fails only for a process that has ended already.
        let servers = self.servers.iter_mut().map(|server| &mut server.process);
        for process in servers.chain([&mut self.bash]) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Sets the `HOME` and `PATH` of a command in the shell, and removes the tester's `LEASEHOLD_*`
/// variables.
fn set_environment(command: &mut Command, directory: &Path) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEHOLD_")) {
        command.env_remove(name);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", directory.join("bin").display()));
    command.env("HOME", directory).env_remove("XDG_STATE_HOME");
}

/// Returns the text that a starting server prints, up to the line `try: …` that ends its banner.
fn read_banner(output: &mut impl BufRead) -> Result<String> {
    let mut banner = String::new();
    while !banner.lines().any(|line| line.starts_with("try: ")) {
        ensure!(output.read_line(&mut banner)? > 0, "the server ended:\n{banner}");
    }
    Ok(banner)
}
