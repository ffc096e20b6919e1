//! A file of golden vectors: parses the file, plays its steps, and formats it again with the actual
//! outputs.

use std::fmt;

use anyhow::{Context, Result, bail};

use super::host::Host;
use super::player::Player;

const SEPARATOR: &str = "----";
const HEADING: &str = "## ";
const ONLY_ON: &str = "hosts: ";

/// A parsed file of golden vectors: a list of scenarios.
#[derive(Clone, Debug)]
pub struct VectorFile {
    name: String,
    preamble: Vec<String>,
    scenarios: Vec<Scenario>,
}

#[derive(Clone, Debug)]
struct Scenario {
    heading: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    /// A blank line or a comment between steps. Formatting the file reproduces it unchanged.
    Text(String),
    Step(Lines),
}

#[derive(Clone, Debug)]
struct Lines {
    line: usize,
    input: Vec<String>,
    expected: Vec<String>,
}

/// A played step whose actual output differs from the output that its file expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    file: String,
    line: usize,
    heading: String,
    input: Vec<String>,
    expected: Vec<String>,
    actual: Vec<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}", self.file, self.line, self.heading)?;
        writeln!(f, "{}", self.input.join("\n"))?;
        writeln!(f, "expected:\n{}\nactual:\n{}", self.expected.join("\n"), self.actual.join("\n"))
    }
}

/// The result of playing all scenarios of a file on one kind of host.
#[derive(Clone, Debug)]
pub struct Played {
    /// The steps whose actual output differs from the expected one.
    pub mismatches: Vec<Mismatch>,
    /// The text of the file with the actual outputs in place of the expected ones.
    pub text: String,
    /// The number of scenarios that this host has played. Scenarios for other kinds of hosts are
    /// skipped.
    pub scenarios: usize,
}

impl VectorFile {
    /// Parses `text`, the content of the file `name`.
    ///
    /// # Errors
    /// A step lacks its `----`, or comes before the file's first heading.
    pub fn parse(name: impl Into<String>, text: &str) -> Result<Self> {
        let mut file = Self { name: name.into(), preamble: Vec::new(), scenarios: Vec::new() };
        let mut lines = text.lines().zip(1..).peekable();
        while let Some((first, line)) = lines.next() {
            if first.starts_with(HEADING) {
                file.scenarios.push(Scenario { heading: first.to_owned(), parts: Vec::new() });
                continue;
            }
            let part = if first.is_empty() || first.starts_with('#') {
                Part::Text(first.to_owned())
            } else {
                let rest = std::iter::from_fn(|| lines.next_if(|(line, _)| !line.is_empty()).map(|(line, _)| line));
                Part::Step(step(line, std::iter::once(first).chain(rest)).with_context(|| file.place(line))?)
            };
            match (file.scenarios.last_mut(), part) {
                (Some(scenario), part) => scenario.parts.push(part),
                (None, Part::Text(text)) => file.preamble.push(text),
                (None, Part::Step(_)) => bail!("{}: a step comes before the first heading", file.place(line)),
            }
        }
        Ok(file)
    }

    fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.name)
    }

    /// Returns the heading of each scenario in the file.
    pub fn headings(&self) -> impl Iterator<Item = &str> {
        self.scenarios.iter().map(|scenario| scenario.heading.as_str())
    }

    /// Plays each scenario that is for hosts of type `H`. `open` returns a host with an empty
    /// service for each scenario.
    ///
    /// # Errors
    /// A step is invalid, or the host fails.
    pub fn play<H: Host>(&self, mut open: impl FnMut() -> Result<H>) -> Result<Played> {
        let mut played = Played { mismatches: Vec::new(), text: String::new(), scenarios: 0 };
        played.write(&self.preamble);
        for scenario in &self.scenarios {
            played.write(&[&scenario.heading]);
            if scenario.is_for(H::NAME) {
                played.scenarios += 1;
                let host = open().with_context(|| scenario.heading.clone())?;
                self.play_scenario(scenario, &mut Player::new(host)?, &mut played)?;
            } else {
                scenario.parts.iter().for_each(|part| played.keep(part));
            }
        }
        Ok(played)
    }

    fn play_scenario<H: Host>(&self, scenario: &Scenario, player: &mut Player<H>, played: &mut Played) -> Result<()> {
        for part in &scenario.parts {
            let Part::Step(step) = part else {
                played.keep(part);
                continue;
            };
            let actual = player.play(&step.input.join(" ")).with_context(|| self.place(step.line))?;
            if actual != step.expected {
                played.mismatches.push(Mismatch {
                    file: self.name.clone(),
                    line: step.line,
                    heading: scenario.heading.clone(),
                    input: step.input.clone(),
                    expected: step.expected.clone(),
                    actual: actual.clone(),
                });
            }
            played.keep(&Part::Step(Lines { expected: actual, ..step.clone() }));
        }
        Ok(())
    }
}

impl Scenario {
    /// True if the scenario is for the host of this name. A heading that ends in `hosts: NAME`
    /// restricts the scenario to one kind of host.
    fn is_for(&self, host: &str) -> bool {
        self.heading.split_once(ONLY_ON).is_none_or(|(_, name)| name == host)
    }
}

impl Played {
    fn write(&mut self, lines: &[impl AsRef<str>]) {
        for line in lines {
            self.text.push_str(line.as_ref());
            self.text.push('\n');
        }
    }

    fn keep(&mut self, part: &Part) {
        match part {
            Part::Text(text) => self.write(&[text]),
            Part::Step(step) => {
                self.write(&step.input);
                self.write(&[SEPARATOR]);
                self.write(&step.expected);
            }
        }
    }
}

fn step<'a>(line: usize, lines: impl Iterator<Item = &'a str>) -> Result<Lines> {
    let mut lines = lines.map(str::to_owned);
    let mut separated = false;
    let input = lines.by_ref().take_while(|line| {
        separated = line == SEPARATOR;
        !separated
    });
    let input = input.collect();
    if !separated {
        bail!("a step has no `{SEPARATOR}` after it");
    }
    Ok(Lines { line, input, expected: lines.collect() })
}
