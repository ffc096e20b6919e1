//! Plays the steps of the Containerfile in a chroot, without a container engine. A directory takes
//! the place of each stage's image.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xtask::process::{as_a_person, root, run};

use crate::debian::Chroot;
use crate::rails::copy_project;

const FILE: &str = "deploy/container/Containerfile";

/// The image of the build stage, Debian 12 with a Rust toolchain. The chroot takes its place.
const BUILD_IMAGE: &str = "docker.io/library/rust:1.95-slim-bookworm";

/// An instruction of a Containerfile, such as `RUN`, with its arguments.
#[derive(Debug, PartialEq, Eq)]
struct Instruction {
    name: String,
    arguments: String,
}

/// Returns the instructions of a Containerfile. A backslash at the end of a line continues it.
fn parse(text: &str) -> Vec<Instruction> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let instruction = |line: &str| {
        let (name, arguments) = line.trim().split_once(' ')?;
        Some(Instruction { name: name.to_owned(), arguments: arguments.trim().to_owned() })
    };
    joined.lines().filter_map(instruction).collect()
}

/// The image that the steps of a Containerfile make.
pub(crate) struct Image {
    /// The image's root directory.
    pub(crate) root: PathBuf,
    /// The user and group that the image's program runs as.
    pub(crate) user: String,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
}

/// The state between two steps.
struct Build<'a> {
    chroot: &'a Chroot,
    image: Image,
    /// True in the stage that runs commands in the chroot, false in the last stage.
    in_chroot: bool,
    directory: String,
    variables: BTreeMap<String, String>,
}

/// Plays the steps. The variables replace the values of the same `ARG`s.
///
/// # Errors
/// A step fails, or is of a kind that this function does not know.
pub(crate) async fn build(chroot: &Chroot, variables: &[(&str, &str)]) -> Result<Image> {
    let text = std::fs::read_to_string(root().join(FILE)).with_context(|| format!("cannot read `{FILE}`"))?;
    let image = Image { root: chroot.root().join("images/leasehold"), user: String::new(), command: Vec::new() };
    if image.root.exists() {
        std::fs::remove_dir_all(&image.root)?;
    }
    std::fs::create_dir_all(&image.root)?;
    let mut build = Build { chroot, image, in_chroot: true, directory: "/".to_owned(), variables: BTreeMap::new() };
    for instruction in parse(&text) {
        build.play(&instruction, variables).await.with_context(|| format!("in {instruction:?}"))?;
    }
    Ok(build.image)
}

impl Build<'_> {
    async fn play(&mut self, step: &Instruction, given: &[(&str, &str)]) -> Result<()> {
        let arguments = step.arguments.as_str();
        match step.name.as_str() {
            "FROM" => self.begin_stage(arguments),
            "ARG" => {
                let (name, default) = arguments.split_once('=').context("an argument has no default")?;
                let value = given.iter().find(|(given, _)| *given == name).map_or(default, |(_, value)| value);
                self.variables.insert(name.to_owned(), value.to_owned());
                Ok(())
            }
            "WORKDIR" => {
                arguments.clone_into(&mut self.directory);
                std::fs::create_dir_all(self.inside(arguments)).context("cannot make the directory")
            }
            "COPY" if self.in_chroot => {
                ensure!(arguments == ". .", "only the whole project may be copied into the first stage");
                copy_project(&self.inside(&self.directory)).await
            }
            "COPY" => self.copy_from_build(arguments).await,
            "RUN" => {
                ensure!(self.in_chroot, "the last stage has no shell");
                let mut shell = self.chroot.command("env");
                shell.args(self.variables.iter().map(|(name, value)| format!("{name}={value}")));
                run(shell.args(["sh", "-euc", &format!("cd {}; {arguments}", self.directory)])).await
            }
            "USER" => {
                arguments.clone_into(&mut self.image.user);
                Ok(())
            }
            "ENTRYPOINT" | "CMD" => {
                let words: Vec<String> = serde_json::from_str(arguments).context("the words are no JSON list")?;
                self.image.command.extend(words);
                Ok(())
            }
            "EXPOSE" => Ok(()),
            other => bail!("the instruction `{other}` is not known"),
        }
    }

    fn begin_stage(&mut self, arguments: &str) -> Result<()> {
        self.in_chroot = arguments == format!("{BUILD_IMAGE} AS build");
        ensure!(self.in_chroot || arguments == "scratch", "the stage begins from an unknown image");
        Ok(())
    }

    /// Copies a directory of the first stage into the image, with the owner that the step names.
    async fn copy_from_build(&self, arguments: &str) -> Result<()> {
        let (options, paths): (Vec<_>, Vec<_>) = arguments.split(' ').partition(|word| word.starts_with("--"));
        ensure!(options.contains(&"--from=build"), "the step copies from an unknown stage");
        let [from, to] = paths[..] else { bail!("the step has not two paths") };
        let owner = options.iter().find_map(|option| option.strip_prefix("--chown=")).unwrap_or("0:0");
        let to = self.image.root.join(to.trim_start_matches('/'));
        run(as_a_person("cp").args(["--recursive", "--no-target-directory"]).arg(self.inside(from)).arg(&to)).await?;
        run(as_a_person("chown").args(["--recursive", owner]).arg(&to)).await
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.chroot.root().join(path.trim_start_matches('/'))
    }
}

impl Image {
    /// Returns a command that runs the image's program, as its user, with other arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Result<tokio::process::Command> {
        let program = self.command.first().context("the image has no program")?;
        let mut chroot = as_a_person("chroot");
        chroot.arg(format!("--userspec={}", self.user)).arg(&self.root).arg(program).args(arguments);
        // `PATH` is for the command `chroot`. The image's program needs no variable.
        chroot.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        Ok(chroot)
    }

    /// Returns the paths of all files in the image.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        fn walk(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
            for entry in std::fs::read_dir(directory)? {
                let path = entry?.path();
                if path.is_dir() { walk(&path, files)? } else { files.push(path) }
            }
            Ok(())
        }
        let mut files = Vec::new();
        walk(&self.root, &mut files)?;
        Ok(files.iter().filter_map(|path| path.strip_prefix(&self.root).ok()).map(PathBuf::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continued_line_is_one_instruction() {
        let text = "# a comment\nFROM scratch\nRUN one \\\n    && two\n\nUSER 1:1\n";
        let names: Vec<_> = parse(text).into_iter().map(|step| (step.name, step.arguments)).collect();
        let expected = [("FROM", "scratch"), ("RUN", "one      && two"), ("USER", "1:1")];
        assert_eq!(names, expected.map(|(name, arguments)| (name.to_owned(), arguments.to_owned())));
    }
}
