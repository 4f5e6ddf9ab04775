use super::*;

/// Bytes of a message on a little-endian machine, written out; the kernel uses the machine's byte order.
#[cfg(target_endian = "little")]
#[test]
fn a_request_is_laid_out_as_linux_netlink_h_says() {
    let mut request = Request::new(16, libc::NLM_F_CREATE, &[1, 2, 3, 4]);
    request.string(3, "veth");
    request.nested(18, |inner| {
        inner.u32(5, 0x0102_0304);
        inner.attribute(6, &[9]);
    });
    #[rustfmt::skip]
    assert_eq!(request.finish(7), [
        52, 0, 0, 0,  16, 0,  5, 4,  7, 0, 0, 0,  0, 0, 0, 0, // header: CREATE | ACK | REQUEST
        1, 2, 3, 4,                                           // the family's own header
        9, 0,  3, 0,  b'v', b'e', b't', b'h',  0, 0, 0, 0,    // a string with its zero, padded
        20, 0, 18, 0,                                         // a nest of two, the last padded
        8, 0,  5, 0,  4, 3, 2, 1,
        5, 0,  6, 0,  9, 0, 0, 0,
    ]);
}

#[test]
fn a_dump_asks_for_no_acknowledgement() {
    let mut request = Request::new(18, libc::NLM_F_DUMP, &[]);
    let flags = u16::from_ne_bytes(field(request.finish(1), 6).unwrap());
    assert_eq!(i32::from(flags), libc::NLM_F_DUMP | libc::NLM_F_REQUEST);
}

/// A message with this kind, flags and body.
fn message(kind: i32, flags: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
    bytes.extend((kind as u16).to_ne_bytes());
    bytes.extend((flags as u16).to_ne_bytes());
    bytes.extend(7u32.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + payload.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn only(bytes: &[u8]) -> Message<'_> {
    let mut all = messages(bytes);
    let message = all.next().unwrap().unwrap();
    assert!(all.next().is_none());
    message
}

#[test]
fn messages_follow_each_other_at_multiples_of_four() {
    let bytes = [message(16, 0, &[1, 2, 3]), message(17, libc::NLM_F_DUMP_INTR, &[4])].concat();
    let read: Vec<_> = messages(&bytes).map(Result::unwrap).collect();
    assert_eq!(read[0].body, [1, 2, 3]);
    assert_eq!((read[1].body, read[1].sequence), (&[4][..], 7));
    assert!(read[1].is_of_an_interrupted_dump() && !read[0].is_of_an_interrupted_dump());
}

#[test]
fn an_acknowledgement_is_an_error_of_zero() {
    let bytes = message(libc::NLMSG_ERROR, 0, &[0; 20]);
    assert_eq!(only(&bytes).errno().unwrap(), Some(0));
    assert_eq!(only(&message(16, 0, &[0; 20])).errno().unwrap(), None);
}

#[test]
fn the_kernels_words_are_read_behind_the_repeated_header() {
    let words = attribute(1, b"Peer netns missing\0");
    let body = [&(-22i32).to_ne_bytes()[..], &[0; 16], &words].concat();
    let bytes = message(libc::NLMSG_ERROR, libc::NLM_F_ACK_TLVS, &body);
    assert_eq!(only(&bytes).errno().unwrap(), Some(-22));
    assert_eq!(only(&bytes).extended_ack().unwrap(), "Peer netns missing");
    let silent = message(libc::NLMSG_ERROR, 0, &body);
    assert_eq!(only(&silent).extended_ack(), None);
}

#[test]
fn a_dump_that_fails_at_its_end_tells_why() {
    let words = attribute(1, b"No such device\0");
    let body = [&(-19i32).to_ne_bytes()[..], &words].concat();
    let bytes = message(libc::NLMSG_DONE, libc::NLM_F_ACK_TLVS, &body);
    assert_eq!(only(&bytes).errno().unwrap(), Some(-19));
    assert_eq!(only(&bytes).extended_ack().unwrap(), "No such device");
}

#[test]
fn attributes_are_found_with_their_flag_bits_ignored() {
    let bytes = [attribute(1, b"one"), attribute(2 | 1 << 15, &7u32.to_ne_bytes())].concat();
    assert_eq!(Attributes(&bytes).text(1).unwrap(), "one");
    assert_eq!(Attributes(&bytes).u32(2), Some(7));
    assert_eq!(Attributes(&bytes).find(3), None);
    assert_eq!(Attributes(&bytes).u32(1), None, "three bytes are not a number");
}

#[test]
fn any_part_of_a_message_is_read_without_panic_and_without_end() {
    let words = attribute(1, b"words\0");
    let body = [&(-22i32).to_ne_bytes()[..], &[0; 16], &words].concat();
    let whole = message(libc::NLMSG_ERROR, libc::NLM_F_ACK_TLVS, &body);
    for length in 1..whole.len() {
        let cut = &whole[..length];
        assert_eq!(messages(cut).count(), 1);
        assert!(messages(cut).next().unwrap().is_err());
    }
    for position in 0..whole.len() {
        for byte in [0, 1, 3, 255] {
            let mut broken = whole.clone();
            broken[position] = byte;
            for message in messages(&broken).flatten() {
                let _ = (message.errno(), message.extended_ack(), Attributes(message.body).count());
            }
        }
    }
}
