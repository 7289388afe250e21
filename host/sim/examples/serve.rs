//! The simulator on a port: `serve [ADDRESS] [FILE …]`; files are loaded.

use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;

use davit_sim::{Config, Server, Sim};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = match arguments.next() {
        Some(address) => address.parse()?,
        None => SocketAddr::from(([127, 0, 0, 1], 8001)),
    };
    let sim = Sim::new(Config::default(), jiff::Timestamp::now())?;
    for file in arguments {
        sim.load_from(BufReader::new(File::open(file)?))?;
    }
    let server = Server::start(address, sim).await?;
    println!("{}", server.url());
    std::future::pending().await
}
