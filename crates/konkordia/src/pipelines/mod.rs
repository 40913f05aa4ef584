//! `konkordia pipelines`: how many of the processing programs of a detector run in a Kubernetes cluster, from the
//! command line and over HTTP.

pub mod args;
pub mod cluster;
mod idle;
mod serve;

use crate::console;
use crate::serve::client::http::Client;
use args::{DownArgs, ListArgs, PipelinesCommand, UpArgs};
use cluster::{Cluster, Scale};
use idle::{Idle, LOOK};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use serde_json::json;
use std::time::{Duration, Instant};

/// Carries out a command.
///
/// # Errors
/// The pipeline is not known, the rights are missing, or the cluster or the service does not answer.
pub fn command(command: &PipelinesCommand) -> Result<Exit, Failure> {
    match command {
        PipelinesCommand::List(args) => list(args),
        PipelinesCommand::Up(args) => up(args),
        PipelinesCommand::Down(args) => down(args),
        PipelinesCommand::Serve(args) => serve::command(args),
    }
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let scales = Cluster::new(&args.cluster)?.scales()?;
    if args.json {
        console::json(&json!(scales), false);
        return Ok(Exit::Complete);
    }
    let head = ["pipeline", "wanted", "pods"].map(str::to_owned).to_vec();
    let row = |scale: &Scale| vec![scale.pipeline.clone(), scale.wanted.to_string(), scale.pods.to_string()];
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(scales.iter().map(row)).collect();
    console::to_stdout(&text::table(&rows));
    Ok(Exit::Complete)
}

fn up(args: &UpArgs) -> Result<Exit, Failure> {
    let cluster = Cluster::new(&args.cluster)?;
    let begun = Instant::now();
    let mut scale = cluster.set(&args.name, args.replicas)?;
    while let Some(longest) = args.timeout.filter(|_| scale.pods != args.replicas) {
        if begun.elapsed().as_secs_f64() >= longest {
            let what = format!("the pipeline '{}' has {} of {} pods", args.name, scale.pods, args.replicas);
            let fix = "look at the events of its Deployment: kubectl describe deployment NAME";
            return Err(Failure::new(Exit::Timeout, what, format!("the cluster has not made them within {longest} s"), fix));
        }
        std::thread::sleep(Duration::from_millis(200));
        scale = cluster.scale(&args.name)?;
    }
    print(&scale, args.json);
    Ok(Exit::Complete)
}

fn down(args: &DownArgs) -> Result<Exit, Failure> {
    let cluster = Cluster::new(&args.cluster)?;
    // What is wrong with the name or the rights is said before the wait.
    let before = cluster.scale(&args.name)?;
    if args.replicas > before.wanted {
        let what = format!("only {} of the pipeline '{}' are wanted", before.wanted, args.name);
        return Err(Failure::new(Exit::Usage, what, format!("{} are more", args.replicas), "use `konkordia pipelines up`"));
    }
    if args.when_idle {
        let mut idle = Idle::new(Client::new(&args.target)?);
        while idle.look()?.is_none_or(|since| since.as_secs_f64() < args.idle_s) {
            std::thread::sleep(LOOK);
        }
    }
    print(&cluster.set(&args.name, args.replicas)?, args.target.json);
    Ok(Exit::Complete)
}

fn print(scale: &Scale, as_json: bool) {
    if as_json {
        console::json(&json!(scale), false);
    } else {
        console::to_stdout(&format!("{}: {} wanted, {} pods", scale.pipeline, scale.wanted, scale.pods));
    }
}
