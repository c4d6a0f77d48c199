//! What the server says on each port.

mod goodbye;
mod http1;
mod http2;
mod one_way;
mod websocket;

pub use goodbye::goodbye;
pub use http1::{http1, tls};
pub use http2::{GRPC, as_io, http2};
pub use one_way::{feed, swallow};
pub use websocket::{as_io as as_websocket_io, websocket};
