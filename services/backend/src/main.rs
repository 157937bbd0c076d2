//! The backend's command line.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use backend::args::{Cli, Command, CreateToken, Database, TokenRole, Tokens, Topics};
use backend::{serve, tokens, topics};
use clap::Parser as _;
use store::Role;

/// What one thread allocates another one frees, which glibc's allocator does slowly and gives little of back.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    runtime::install_crypto();
    let cli = Cli::parse();
    runtime::program::main(async { run(cli).await.map_err(anyhow::Error::into_boxed_dyn_error) })
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Serve(args) => Ok(serve::run(*args).await?),
        Command::Migrate(database) => migrate(&database).await,
        Command::Topics(args) => create_topics(&args).await,
        Command::Tokens(Tokens::Create(args)) => create_token(args).await,
        Command::Openapi => {
            say(&backend::api::openapi().to_pretty_json().context("write the description")?)
        }
    }
}

async fn migrate(database: &Database) -> anyhow::Result<()> {
    serve::store(database, "slipway-migrate")?.migrate().await?;
    say("the schema is up to date")
}

async fn create_topics(args: &Topics) -> anyhow::Result<()> {
    let created = topics::ensure(&args.kafka, args.topic_replication).await?;
    for topic in [&args.kafka.instructions_topic, &args.kafka.gossip_topic] {
        let state = if created.contains(topic) { "created" } else { "was there" };
        say(&format!("{topic}: {state}, {} partitions", args.kafka.topic_partitions))?;
    }
    Ok(())
}

async fn create_token(args: CreateToken) -> anyhow::Result<()> {
    let CreateToken { database, role, tenant, name, days } = args;
    let role = match role {
        TokenRole::Tenant => Role::Tenant,
        TokenRole::Console => Role::Console,
        TokenRole::Sre => Role::Sre,
    };
    let tenant = tenant.map(|text| text.parse().with_context(|| format!("tenant {text:?}"))).transpose()?;
    let store = serve::store(&database, "slipway-tokens")?;
    let secret = tokens::create(&store, tokens::Wish { role, tenant, name, days }).await?;
    say(&secret)
}

/// Results go to standard output, logs elsewhere. A reader that went away is an error, not a panic.
fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("write to standard output")
}
