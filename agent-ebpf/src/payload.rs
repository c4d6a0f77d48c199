//! What a TCP segment carries, and its first bytes. Of a local socket's the head holds the headers
//! only: the payload lies in pages of its own, which are read where the kernel maps all memory.

use aya_ebpf::{Global, helpers::bpf_get_current_task};
use rollrace_ebpf::{
    flow::PEEK,
    packet::{self, HEADERS, place},
};

use crate::{
    cast::{IPHDR_ID, IPV6HDR_ID, TCPHDR_ID, WORDS_ID, cast},
    kernel::{
        CACHE_NAME, PAGE_HEAD, SHARED_FRAGS, SKB_DATA_LEN, SLAB_CACHE, Skb, read, read_into, word,
    },
};

/// Where the kernel maps all memory; 0 if that is not known.
#[unsafe(no_mangle)]
static PAGE_OFFSET: Global<u64> = Global::new(0);
/// Where its `struct page`s are.
#[unsafe(no_mangle)]
static VMEMMAP: Global<u64> = Global::new(0);
/// Size of a page.
#[unsafe(no_mangle)]
static PAGE_SIZE: Global<u64> = Global::new(4096);
/// Size of `struct page`.
#[unsafe(no_mangle)]
static PAGE_STRUCT: Global<u32> = Global::new(64);
/// Offset of the page in a fragment of an skb.
#[unsafe(no_mangle)]
static FRAG_PAGE: Global<u32> = Global::new(0);
/// Offset of the begin in that page in a fragment of an skb.
#[unsafe(no_mangle)]
static FRAG_BEGIN: Global<u32> = Global::new(12);

/// What a TCP segment carries.
pub struct Segment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Bytes of payload.
    pub length: u32,
    /// Where it begins, from the network header on.
    pub data: u32,
}

impl Segment {
    /// Of a packet without IP options.
    #[inline(always)]
    pub fn of(skb: &Skb, v6: bool) -> Option<Self> {
        let header = if v6 { place::TCP_V6 } else { place::TCP_V4 };
        if let Some(tcp) = cast(skb.place(header), &TCPHDR_ID) {
            let total = if v6 {
                let ip = cast(skb.place(0), &IPV6HDR_ID)?;
                u32::from(u16::from_be(ip.load(place::PAYLOAD_V6))) + header
            } else {
                u32::from(u16::from_be(cast(skb.place(0), &IPHDR_ID)?.load(place::TOTAL_V4)))
            };
            let data = header + u32::from(tcp.load::<u8>(place::OFFSET) >> 4) * 4;
            return Some(Self {
                seq: u32::from_be(tcp.load(place::SEQ)),
                ack: u32::from_be(tcp.load(place::ACK)),
                length: total.saturating_sub(data),
                data,
            });
        }
        let mut headers = [0; HEADERS];
        skb.headers(v6, &mut headers)?;
        let tcp = if v6 { headers[40..60].first_chunk() } else { headers[20..40].first_chunk() };
        let tcp = packet::Tcp::read(tcp?);
        let data = header + tcp.length;
        let length = packet::total_length(&headers, v6).saturating_sub(data);
        Some(Self { seq: tcp.seq, ack: tcp.ack, length, data })
    }

    /// Its first bytes, and whatever is behind a shorter one; `None` where they cannot be read.
    #[inline(always)]
    pub fn peek(&self, skb: &Skb) -> Option<[u8; PEEK]> {
        let elsewhere: u32 = skb.member(&SKB_DATA_LEN)?;
        let at = if elsewhere == 0 || elsewhere + PEEK as u32 <= self.length {
            skb.place(self.data)
        } else if elsewhere == self.length {
            first_fragment(skb)?
        } else {
            return None;
        };
        let mut bytes = [0; PEEK];
        if let Some(words) = cast(at, &WORDS_ID) {
            let (low, high): (u64, u64) = (words.load(0), words.load(8));
            bytes[..8].copy_from_slice(&low.to_ne_bytes());
            bytes[8..].copy_from_slice(&high.to_ne_bytes());
        } else {
            read_into(at, &mut bytes)?;
        }
        Some(bytes)
    }
}

/// Where an skb's first fragment begins.
#[inline(always)]
fn first_fragment(skb: &Skb) -> Option<u64> {
    let (map, pages) = (PAGE_OFFSET.load(), VMEMMAP.load());
    if map == 0 {
        return None;
    }
    let fragment = skb.shared()? + u64::from(SHARED_FRAGS.load());
    let page: u64 = word(fragment + u64::from(FRAG_PAGE.load()))?;
    let begin: u32 = word(fragment + u64::from(FRAG_BEGIN.load()))?;
    // The lowest bit is set of memory that is no page of this machine (`netmem_ref`).
    if page & 1 != 0 || page < pages {
        return None;
    }
    let number = (page - pages).checked_div(u64::from(PAGE_STRUCT.load()))?;
    Some(map + number * PAGE_SIZE.load() + u64::from(begin))
}

/// Addresses of the kernel's variables `page_offset_base` and `vmemmap_base`; 0 where it has none.
#[unsafe(no_mangle)]
static PAGE_OFFSET_AT: Global<u64> = Global::new(0);
/// See [`PAGE_OFFSET_AT`].
#[unsafe(no_mangle)]
static VMEMMAP_AT: Global<u64> = Global::new(0);

/// Without those variables, on x86-64: Documentation/arch/x86/x86_64/mm.rst, four levels of page
/// tables, then five.
const FIXED: [(u64, u64); 2] = [
    (0xffff_8880_0000_0000, 0xffff_ea00_0000_0000),
    (0xff11_0000_0000_0000, 0xffd4_0000_0000_0000),
];
/// Whether [`FIXED`] may be tried.
#[unsafe(no_mangle)]
static MAY_BE_FIXED: Global<u32> = Global::new(0);

/// Where all memory is mapped, and where its pages are: proven by the running task, whose page must
/// say that it holds tasks.
#[inline(always)]
pub fn direct_map() -> Option<(u64, u64)> {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    let (at, pages_at) = (PAGE_OFFSET_AT.load(), VMEMMAP_AT.load());
    let (map, pages) = if at != 0 && pages_at != 0 {
        (read(at, 0)?, read(pages_at, 0)?)
    } else if MAY_BE_FIXED.load() == 0 {
        return None;
    } else if task >> 48 == 0xffff {
        FIXED[0]
    } else {
        FIXED[1]
    };
    if task < map {
        return None;
    }
    let number = (task - map).checked_div(PAGE_SIZE.load())?;
    let page = pages + number * u64::from(PAGE_STRUCT.load());
    // The lowest bit is set in all but the first page of several (`compound_head`).
    let head: u64 = read(page, PAGE_HEAD.load())?;
    let page = if head & 1 != 0 { head - 1 } else { page };
    let cache: u64 = read(page, SLAB_CACHE.load())?;
    let name: u64 = read(cache, CACHE_NAME.load())?;
    let text: u64 = read(name, 0)?;
    (text == u64::from_ne_bytes(*b"task_str")).then_some((map, pages))
}
