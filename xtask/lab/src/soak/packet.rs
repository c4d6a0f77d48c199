//! Packets as `MySQL`'s: three bytes of length, a sequence number, the payload.

/// Bytes before the payload.
pub const HEAD: usize = 4;
/// The client's goodbye (`COM_QUIT`).
pub const QUIT: &[u8] = &[1];

/// A packet around a payload.
pub fn framed(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_le_bytes();
    let mut packet = vec![length[0], length[1], length[2], sequence];
    packet.extend_from_slice(payload);
    packet
}

/// Bytes of payload behind this head.
pub fn length(head: [u8; HEAD]) -> usize {
    usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_says_how_long_it_is() {
        let packet = framed(3, &[7; 300]);
        assert_eq!(length([packet[0], packet[1], packet[2], packet[3]]), 300);
        assert_eq!(framed(0, QUIT), [1, 0, 0, 0, 1]);
    }
}
