//! Over real sockets, in real time: the kernel's buffers are part of what is tested.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, interval, sleep, timeout};

use super::connection::{LITTLE_ROOM, PacedConnection};
use super::pace::{LONGEST_PAUSE, MANY_BYTES, MOST_BYTES, Pace, Pause, Pauses, SHORTEST_PAUSE};

const PATIENCE: Duration = Duration::from_secs(20);

async fn connected(is_paced: bool) -> (PacedConnection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (socket, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (server, _) = accepted.unwrap();
    server.set_nodelay(true).unwrap();
    (PacedConnection::new(socket.unwrap(), is_paced), server)
}

/// Sends numbers from 0 on, a thousand a second.
async fn send(server: &mut TcpStream, numbers: u32) {
    let mut ticks = interval(Duration::from_millis(1));
    for number in 0..numbers {
        ticks.tick().await;
        server.write_u32(number).await.unwrap();
    }
}

fn numbers(count: u32) -> Vec<u8> {
    (0..count).flat_map(u32::to_be_bytes).collect()
}

/// Reads so many bytes; also returns how many reads it took.
async fn read(host: &mut PacedConnection, length: usize) -> (Vec<u8>, usize) {
    let (mut all, mut reads) = (Vec::new(), 0);
    let mut buffer = [0; 4096];
    while all.len() < length {
        let read = timeout(PATIENCE, host.read(&mut buffer)).await;
        let read = read.expect("nothing comes").unwrap();
        assert!(read > 0, "it has ended");
        all.extend_from_slice(&buffer[..read]);
        reads += 1;
    }
    (all, reads)
}

/// A connection that is in a pause, and the server's end.
async fn paced() -> (PacedConnection, TcpStream) {
    let (mut host, mut server) = connected(true).await;
    let start = Instant::now();
    while host.is_watched() {
        server.write_u8(1).await.unwrap();
        assert_eq!(read(&mut host, 1).await.0, [1]);
        assert!(start.elapsed() < PATIENCE, "it is never paced");
    }
    (host, server)
}

#[tokio::test]
async fn many_small_events_are_read_together_in_their_order() {
    let (mut host, mut server) = connected(true).await;
    let length = numbers(1_000).len();
    let ((), (all, reads)) = tokio::join!(send(&mut server, 1_000), read(&mut host, length));
    assert_eq!(all, numbers(1_000));
    assert!(reads < 700, "{reads} reads");
}

#[tokio::test]
async fn after_a_silence_an_event_is_read_at_once() {
    let (mut host, mut server) = paced().await;
    let silence = timeout(3 * LONGEST_PAUSE, host.read_u8()).await;
    assert!(silence.is_err());
    assert!(host.is_watched());
    server.write_u8(7).await.unwrap();
    assert_eq!(timeout(PATIENCE, host.read_u8()).await.unwrap().unwrap(), 7);
    assert!(host.is_watched(), "one event is not many");
}

/// Otherwise it is chance, in the first list, how long the pauses are.
#[tokio::test]
async fn a_connection_with_pauses_has_room_for_long_ones() {
    let (host, _server) = paced().await;
    // A container with a network of its own has no such file on older kernels.
    let Ok(most) = std::fs::read_to_string("/proc/sys/net/core/rmem_max") else {
        return;
    };
    let most: usize = most.trim().parse().unwrap();
    let room = host.room();
    assert!(room >= LITTLE_ROOM.min(2 * most), "{room} of {most} bytes");
}

#[tokio::test]
async fn a_write_waits_for_no_pause() {
    let (mut host, mut server) = paced().await;
    host.write_all(b"a request").await.unwrap();
    host.flush().await.unwrap();
    assert!(!host.is_watched(), "the pauses continue");
    let mut request = [0; 9];
    server.read_exact(&mut request).await.unwrap();
    assert_eq!(&request, b"a request");
    server.write_all(b"an answer").await.unwrap();
    assert_eq!(read(&mut host, 9).await.0, b"an answer");
}

/// More than the kernel takes: the rest is written when there is room.
#[tokio::test]
async fn a_write_that_has_no_room_is_finished_later() {
    let (mut host, mut server) = paced().await;
    let sent = numbers(4_000_000);
    let receive = async {
        sleep(LONGEST_PAUSE).await;
        let mut received = vec![0; sent.len()];
        timeout(PATIENCE, server.read_exact(&mut received))
            .await
            .unwrap()
            .unwrap();
        received
    };
    let (written, received) = tokio::join!(host.write_all(&sent), receive);
    written.unwrap();
    assert_eq!(received, sent);
}

/// What a server may send to a connection that is not read, before its window grows.
#[tokio::test]
async fn a_list_ends_the_pauses() {
    let (mut host, mut server) = paced().await;
    let sent = numbers(100_000);
    assert!(sent.len() > MOST_BYTES, "whatever room the kernel has");
    let (written, read) = tokio::join!(server.write_all(&sent), read(&mut host, sent.len()));
    written.unwrap();
    assert_eq!(read.0, sent);
    assert!(host.is_watched());
}

#[tokio::test]
async fn a_connection_of_other_watches_has_no_pauses() {
    let (mut host, mut server) = connected(false).await;
    let start = Instant::now();
    while start.elapsed() < 20 * SHORTEST_PAUSE {
        server.write_u8(1).await.unwrap();
        assert_eq!(read(&mut host, 1).await.0, [1]);
        assert!(host.is_watched());
    }
}

#[tokio::test]
async fn the_end_and_a_broken_connection_are_noticed() {
    let (mut host, server) = paced().await;
    drop(server);
    let end = timeout(PATIENCE, host.read(&mut [0; 16])).await;
    assert_eq!(end.unwrap().unwrap(), 0);

    let (mut host, server) = paced().await;
    host.write_all(b"unread").await.unwrap();
    server.readable().await.unwrap();
    // What was not read makes the kernel reset the connection.
    drop(server);
    let broken = timeout(PATIENCE, host.read(&mut [0; 16])).await;
    assert_eq!(
        broken.unwrap().unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}

/// How long the pauses are once so many bytes a second have come for a while; none if they are over.
fn settled(bytes_a_second: usize, room: usize) -> Option<u128> {
    let (mut pauses, mut length) = (Pauses::default(), SHORTEST_PAUSE);
    for _ in 0..10 {
        let bytes = bytes_a_second * length.as_millis() as usize / 1_000;
        length = pauses.next(Pause { length, bytes }, room)?;
    }
    Some(length.as_millis())
}

#[test]
fn a_pause_is_as_long_as_the_kernel_has_room_for_twice_of_what_comes() {
    let small = 128 << 10;
    assert_eq!(settled(0, small), Some(100));
    assert_eq!(settled(150_000, small), Some(100));
    assert_eq!(settled(300_000, small), Some(50));
    assert_eq!(settled(1_000_000, small), Some(25));
    assert_eq!(settled(1_400_000, small), None, "a list");
    let large = 4 << 20;
    assert_eq!(settled(1_000_000, large), Some(100));
    assert_eq!(settled(2_000_000, large), Some(50));
    assert_eq!(settled(20_000_000, large), None, "a list");
    let long = |bytes| Pause {
        length: LONGEST_PAUSE,
        bytes,
    };
    let next = |last, room| Pauses::default().next(last, room);
    assert_eq!(next(long(32 << 10), small), None, "a list");
    assert_eq!(next(long(1), 0), None, "no room is known");
}

/// How many pauses there are when each brings what `brings` says of its length; at most a hundred.
fn pauses(first: Duration, brings: impl Fn(Duration) -> usize) -> usize {
    let (mut pauses, mut length) = (Pauses::default(), first);
    for number in 1..100 {
        let bytes = brings(length);
        match pauses.next(Pause { length, bytes }, 128 << 10) {
            Some(next) => length = next,
            None => return number,
        }
    }
    100
}

/// Without memory for its connections, a kernel lets a server send less than there is room for.
#[test]
fn a_server_that_sends_no_more_in_a_longer_pause_has_stopped() {
    let stopped_at = |bytes| move |_: Duration| bytes;
    assert_eq!(pauses(SHORTEST_PAUSE, stopped_at(6 << 10)), 2);
    for bytes in [6 << 10, 12 << 10, 20 << 10, 30 << 10] {
        for first in [SHORTEST_PAUSE, 2 * SHORTEST_PAUSE, LONGEST_PAUSE] {
            // Twenty of each length, and one that is short.
            let pauses = pauses(first, stopped_at(bytes));
            assert!(pauses <= 65, "{first:?}, {bytes}: {pauses}");
        }
    }
    for kilobytes_a_second in [50, 150, 300, 1_000] {
        let brings = |length: Duration| length.as_millis() as usize * kilobytes_a_second;
        assert_eq!(pauses(SHORTEST_PAUSE, brings), 100, "{kilobytes_a_second}");
    }
}

#[tokio::test]
async fn what_comes_slowly_is_read_ten_times_a_second() {
    let (mut host, mut server) = paced().await;
    let sending = async {
        let mut ticks = interval(Duration::from_millis(4));
        loop {
            ticks.tick().await;
            if server.write_u32(7).await.is_err() {
                return;
            }
        }
    };
    let reading = async {
        let (start, mut reads) = (Instant::now(), 0);
        while start.elapsed() < 20 * LONGEST_PAUSE {
            let read = host.read(&mut [0; 4096]).await.unwrap();
            assert!(read > 0, "it has ended");
            reads += 1;
        }
        reads
    };
    tokio::select! {
        () = sending => panic!("the connection broke"),
        // Each by itself, these would be 500.
        reads = reading => assert!(reads <= 200, "{reads} reads"),
    }
}

/// After how many events a pause is due, one each `gap`, of `length` bytes, read in `pieces`; none
/// within a thousand.
fn due(gap: Duration, length: usize, pieces: usize) -> Option<usize> {
    let start = Instant::now();
    let mut pace = Pace::new(start);
    (0..1_000).find(|&read| {
        let now = start + gap * u32::try_from(read).unwrap();
        let parts =
            (1..=pieces).map(|piece| pace.is_pause_due(now, length / pieces, piece == pieces));
        parts.last().unwrap()
    })
}

#[test]
fn only_many_small_reads_for_a_while_make_a_pause_due() {
    let millis = Duration::from_millis;
    assert_eq!(due(millis(2), 1_000, 1), Some(65));
    assert_eq!(due(millis(5), 1_000, 1), Some(25));
    assert_eq!(due(millis(5), 8_000, 2), Some(25));
    assert_eq!(due(millis(9), 1_000, 1), None, "too few");
    assert_eq!(due(millis(9), 8_000, 2), None, "each is read in two pieces");
    assert_eq!(due(millis(1), MANY_BYTES / 10, 1), None, "a list");
}

#[test]
fn a_gap_starts_the_count_again() {
    let start = Instant::now();
    let mut pace = Pace::new(start);
    let mut at = start;
    for _ in 0..20 {
        // Busy for a while, then silent.
        for _ in 0..40 {
            at += Duration::from_millis(2);
            assert!(!pace.is_pause_due(at, 100, true));
        }
        at += 3 * SHORTEST_PAUSE;
    }
}
