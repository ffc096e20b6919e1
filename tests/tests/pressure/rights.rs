//! Tests that a connection ends when its certificate no longer gives it rights, or at its greatest
//! age.

use std::time::{Duration, Instant};

use leasehold_tests::certificates::Authority;
use leasehold_tests::http2::{GOAWAY, PREFACE, read_until, send};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{call_raw, eventually};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tonic::transport::Channel;

use super::{GET_CELLS, tls_server, write};

const CELL: &str = "spiffe://leasehold/cell/1";

async fn call_until_refused(channel: &Channel) {
    eventually("the certificate is refused", async || call_raw(channel, GET_CELLS, vec![]).await.err()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_ends_its_connection() {
    let (directory, authority) = (TempDir::new().unwrap(), Authority::new("first").unwrap());
    let server = tls_server(directory.path(), &authority, "").start().unwrap();
    let short = authority.client_until(&[CELL], Duration::from_secs(4)).unwrap();
    let channel = server.connect(Some(authority.client_config(Some(&short)))).await.unwrap();
    call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
    call_until_refused(&channel).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchanged_authority_ends_connections_that_it_does_not_allow() {
    let (directory, first) = (TempDir::new().unwrap(), Authority::new("first").unwrap());
    let second = Authority::new("second").unwrap();
    let server = tls_server(directory.path(), &first, "").start().unwrap();
    let [old, new] = [&first, &second].map(|authority| authority.client(&[CELL]).unwrap());
    let config = first.client_config(Some(&old));
    let channel = server.connect(Some(config)).await.unwrap();
    call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
    // Both authorities are allowed for a while: the connection stays as it is.
    write(&directory.path().join("ca.pem"), &(first.pem() + &second.pem()));
    let other = eventually("the second authority is allowed", async || {
        let channel = server.connect(Some(first.client_config(Some(&new)))).await.ok()?;
        call_raw(&channel, GET_CELLS, vec![]).await.ok().map(|_| channel)
    });
    let other = other.await.unwrap();
    call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
    write(&directory.path().join("ca.pem"), &second.pem());
    call_until_refused(&channel).await;
    call_raw(&other, GET_CELLS, vec![]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_at_its_greatest_age_and_its_client_connects_again() {
    let server = Server::builder().config("[limits]\nconnection_age_seconds = 2\n").start().unwrap();
    let channel = server.connect(None).await.unwrap();
    call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    send(&mut stream, PREFACE).await.unwrap();
    let since = Instant::now();
    read_until(&mut stream, |frame| frame.kind == GOAWAY).await.unwrap();
    assert!((1..10).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
    eventually("the client is connected again", async || call_raw(&channel, GET_CELLS, vec![]).await.ok())
        .await
        .unwrap();
}
