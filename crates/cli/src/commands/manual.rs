//! The manual page and shell completions, from the same source as `--help`.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::{
    args::Cli,
    failure::{Failure, Status},
};

pub(crate) fn write_man_page() -> Result<bool, Failure> {
    let mut page = Vec::new();
    render(&mut page).map_err(|source| Failure::new(Status::Internal, source))?;
    print(&page)
}

pub(crate) fn write_completions(shell: clap_complete::Shell) -> Result<bool, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "linerate", &mut script);
    print(&script)
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
