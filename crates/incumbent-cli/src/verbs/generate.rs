//! What is printed for others to use: `completions` and `man`, from the one definition of the
//! command line, and `schema`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};

use super::manual;
use crate::args::{Cli, CompletionsArgs, ManArgs, SchemaArgs, SchemaOf};
use crate::failure::Failure;
use crate::output::cannot_write;

pub(crate) fn completions(args: CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "incumbent", &mut script);
    print(&script)
}

pub(crate) fn man(args: ManArgs) -> Result<u8, Failure> {
    let definition = definition();
    if let Some(directory) = &args.dir {
        return write_all(&definition, directory);
    }
    let Some(verb) = &args.verb else { return print(&page(&definition, &definition)?) };
    let Some(found) = verbs(&definition).find(|known| known.get_name() == verb) else {
        return Err(Failure::usage(format!("there is no verb {verb:?}")).next("`incumbent --help` lists them"));
    };
    print(&page(found, &definition)?)
}

pub(crate) fn schema(args: SchemaArgs) -> Result<u8, Failure> {
    match args.of {
        SchemaOf::Postgres => postgres_schema(&args.name),
    }
}

#[cfg(feature = "postgres")]
fn postgres_schema(name: &str) -> Result<u8, Failure> {
    let ddl = incumbent_postgres::schema_ddl(name).map_err(|error| Failure::usage(error.to_string()))?;
    print(ddl.as_bytes())
}

#[cfg(not(feature = "postgres"))]
fn postgres_schema(_name: &str) -> Result<u8, Failure> {
    Err(Failure::usage("PostgreSQL is not in this build: cargo feature `postgres`".to_owned()))
}

/// With what verbs inherit from the command filled in.
fn definition() -> Command {
    let mut definition = Cli::command();
    definition.build();
    definition
}

/// Those that have a page: all but `help`, which prints those of the others.
fn verbs(definition: &Command) -> impl Iterator<Item = &Command> {
    definition.get_subcommands().filter(|verb| verb.get_name() != "help")
}

fn write_all(definition: &Command, directory: &Path) -> Result<u8, Failure> {
    fs::create_dir_all(directory).map_err(|error| cannot_save(directory, error))?;
    write_pages(definition, definition, "incumbent", directory)?;
    Ok(0)
}

/// A page for a command, and for each below it.
fn write_pages(command: &Command, definition: &Command, name: &str, directory: &Path) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, page(command, definition)?).map_err(|error| cannot_save(&path, error))?;
    for below in verbs(command) {
        write_pages(below, definition, &format!("{name}-{}", below.get_name()), directory)?;
    }
    Ok(())
}

fn page(command: &Command, definition: &Command) -> Result<Vec<u8>, Failure> {
    let names: Vec<_> = verbs(definition).map(|verb| verb.get_name().to_owned()).collect();
    manual::page(command, &names).map_err(cannot_write)
}

fn cannot_save(path: &Path, error: io::Error) -> Failure {
    Failure::error(format!("cannot write {}: {error}", path.display()))
}

fn print(bytes: &[u8]) -> Result<u8, Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(cannot_write)?;
    Ok(0)
}
