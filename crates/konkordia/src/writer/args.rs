//! The command line of `konkordia writer`.

use clap::{Args, ValueEnum};
use konkordia_core::failure::{Exit, Failure};
use konkordia_links::kind::Kind;
use konkordia_links::verbs::Service;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The kinds of links, as in `[[writer]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkName {
    /// On every host
    Tcp,
    /// By memory that both programs share, on one host
    Shm,
    /// By a provider of libfabric
    Libfabric,
    /// By a card with RDMA (never run on one)
    Verbs,
}

/// `konkordia writer`
#[derive(Debug, Args)]
pub struct WriterArgs {
    /// Address and port at which senders connect; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// What images come through, as `link` in `[[writer]]` of the senders; `konkordia links` shows what this host has
    #[arg(long, value_enum, value_name = "KIND", default_value_t = LinkName::Tcp)]
    pub link: LinkName,
    /// With `--link libfabric`: its provider, as in `[[writer]]` of the senders [default: tcp]
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// With `--link verbs`: the RDMA device [default: the first one]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Folder of the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// Memory into which senders write, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub memory: u64,
    /// How long the files of a run stay open for a sender whose link has broken, in s
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub patience: u64,
    /// How often images are brought to the disk, in ms
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub sync_ms: u64,
    /// Ends after so many runs
    #[arg(long, value_name = "N")]
    pub runs: Option<u64>,
    /// Replaces older files of the same prefix
    #[arg(long)]
    pub overwrite: bool,
    /// Writes events as JSON, one per line
    #[arg(long)]
    pub json: bool,
}

impl WriterArgs {
    /// The kind of link that is asked for.
    ///
    /// # Errors
    /// An option belongs to another kind.
    pub fn kind(&self) -> Result<Kind, Failure> {
        let of_another = [
            (self.provider.is_some() && self.link != LinkName::Libfabric, "--provider", "--link libfabric"),
            (self.device.is_some() && self.link != LinkName::Verbs, "--device", "--link verbs"),
        ];
        if let Some((_, option, link)) = of_another.into_iter().find(|(is_wrong, ..)| *is_wrong) {
            let (what, why) = (format!("{option} without {link}"), "other links have none".to_string());
            return Err(Failure::new(Exit::Usage, what, why, format!("remove it, or add {link}")));
        }
        Ok(match self.link {
            LinkName::Tcp => Kind::Tcp,
            LinkName::Shm => Kind::Shm,
            LinkName::Libfabric => Kind::Libfabric { provider: self.provider.clone().unwrap_or_else(|| "tcp".into()) },
            LinkName::Verbs => Kind::Verbs { device: self.device.clone(), service: Service::Reliable },
        })
    }
}
