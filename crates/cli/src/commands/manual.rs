//! The manual page and shell completions, from the same source as `--help`.

use std::io::{self, Write};

use clap::{Arg, Command, CommandFactory, builder::PossibleValuesParser};

use crate::{
    args::{Cli, engine_names},
    failure::{Failure, Status},
};

pub(crate) fn write_man_page() -> Result<bool, Failure> {
    let mut page = Vec::new();
    render(&mut page).map_err(|source| Failure::new(Status::Internal, source))?;
    print(&page)
}

pub(crate) fn write_completions(shell: clap_complete::Shell) -> Result<bool, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut completed(Cli::command()), "linerate", &mut script);
    print(&script)
}

/// The command with the engines' names where an option takes an engine; their switches (`udp+gso`) are left to type.
fn completed(command: Command) -> Command {
    let sends = command.get_name() == "send";
    let with_names = |arg: Arg| {
        let takes_engine =
            arg.get_value_names().is_some_and(|names| names.iter().any(|name| *name == "ENGINE"));
        if !takes_engine {
            return arg;
        }
        let is_sender = arg.get_id() == "tx" || sends && arg.get_id() == "engine";
        arg.value_parser(PossibleValuesParser::new(engine_names(is_sender)))
    };
    command.mut_args(with_names).mut_subcommands(completed)
}

/// The page of linerate, then a section per command.
fn render(page: &mut Vec<u8>) -> io::Result<()> {
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(page)?;
    for each in command.get_subcommands().filter(|each| !each.is_hide_set() && each.get_name() != "help") {
        writeln!(page, ".SH \"LINERATE {}\"", each.get_name().to_uppercase())?;
        let man = clap_mangen::Man::new(each.clone());
        man.render_synopsis_section(page)?;
        man.render_description_section(page)?;
        man.render_options_section(page)?;
    }
    Ok(())
}

fn print(bytes: &[u8]) -> Result<bool, Failure> {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Status::Refused, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap_complete::Shell;

    use crate::args::{Cli, engine_names};

    #[test]
    fn engines_are_completed_by_name_in_every_shell() {
        for shell in [Shell::Bash, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut super::completed(Cli::command()), "linerate", &mut script);
            let script = String::from_utf8(script).unwrap();
            for names in [engine_names(true), engine_names(false)] {
                assert!(script.contains(&names.join(" ")), "{shell}: {names:?}");
            }
        }
    }

    #[test]
    fn the_manual_lists_every_command_and_the_exit_statuses() {
        let mut page = Vec::new();
        super::render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for word in ["LINERATE BENCH", "LINERATE SEND", "LINERATE RECV", "Exit status", "frame\\-size"] {
            assert!(page.contains(word), "{word}");
        }
    }
}
