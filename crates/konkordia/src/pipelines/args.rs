//! Arguments of `konkordia pipelines`.

use crate::help::TEMPLATE;
use crate::serve::client::args::TargetArgs;
use clap::{Args, Subcommand};
use konkordia_core::failure::EXIT_CODES;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `konkordia pipelines ...`
#[derive(Debug, Subcommand)]
pub enum PipelinesCommand {
    /// Shows how many of each pipeline are wanted and how many there are
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia pipelines list --pipelines azint,spots
  konkordia pipelines list --namespace eiger --pipelines azint --json
  konkordia pipelines list --api-server http://127.0.0.1:8001 --pipelines azint")]
    List(ListArgs),
    /// Starts a pipeline, or changes how many of it run
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia pipelines up azint
  konkordia pipelines up azint --replicas 20 --timeout 60
  konkordia pipelines up spots --namespace eiger --json")]
    Up(UpArgs),
    /// Stops a pipeline, at once or when the detector has been idle for a while
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia pipelines down azint
  konkordia pipelines down azint --replicas 2
  konkordia pipelines down azint --when-idle --idle-s 300")]
    Down(DownArgs),
    /// Offers the same over HTTP
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia pipelines serve --pipelines azint,spots
  konkordia pipelines serve --listen 0.0.0.0:8091 --tokens /etc/konkordia/tokens
  konkordia pipelines serve --idle-s 600 --down-when-idle")]
    Serve(ServeArgs),
}

/// Which cluster, and what in it. In a pod of the chart all of it is found without options.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// Names of the pipelines: Deployments of this namespace. No others are touched
    #[arg(long, value_name = "NAME,NAME", env = "KONKORDIA_PIPELINES", value_delimiter = ',', help_heading = "Cluster")]
    pub pipelines: Vec<String>,
    /// URL of the API server [default: that of the cluster in which this pod runs]
    #[arg(long, value_name = "URL", env = "KONKORDIA_API_SERVER", help_heading = "Cluster")]
    pub api_server: Option<String>,
    /// Folder with `token`, `ca.crt` and `namespace` of the service account
    #[arg(
        long,
        value_name = "DIR",
        env = "KONKORDIA_SERVICE_ACCOUNT",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount",
        help_heading = "Cluster"
    )]
    pub service_account: PathBuf,
    /// Namespace of the pipelines [default: that of the service account]
    #[arg(long, value_name = "NAME", env = "KONKORDIA_NAMESPACE", help_heading = "Cluster")]
    pub namespace: Option<String>,
    /// Most of one pipeline that may be asked for
    #[arg(long, value_name = "N", env = "KONKORDIA_REPLICAS_MAX", default_value_t = 100, help_heading = "Cluster")]
    pub replicas_max: u32,
}

/// `konkordia pipelines list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// For programs: JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `konkordia pipelines up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Name of the pipeline
    pub name: String,
    /// How many are to run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub replicas: u32,
    /// Wait until the cluster has made so many pods, at most this long
    #[arg(long, value_name = "S")]
    pub timeout: Option<f64>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// For programs: JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `konkordia pipelines down`
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Name of the pipeline
    pub name: String,
    /// How many are to be left
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub replicas: u32,
    /// Wait first until no detector of the service has had a run for some time
    #[arg(long)]
    pub when_idle: bool,
    /// With --when-idle: for how long
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub idle_s: f64,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Which service says that the detector is idle.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `konkordia pipelines serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address and port on which to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8091")]
    pub listen: SocketAddr,
    /// File of the tokens (`konkordia token create`): needed to listen for other hosts. To look takes the role view, to
    /// change something operate
    #[arg(long, value_name = "FILE", env = "KONKORDIA_PIPELINES_TOKENS")]
    pub tokens: Option<PathBuf>,
    /// Stop every pipeline when no detector of the service has had a run for --idle-s
    #[arg(long)]
    pub down_when_idle: bool,
    /// How long a detector has no run until it counts as idle
    #[arg(long, value_name = "S", default_value_t = 600.0)]
    pub idle_s: f64,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Which service says that the detector is idle.
    #[command(flatten)]
    pub target: TargetArgs,
}
