//! What opens engines: keys and certificates that the operator gives the router, and no client ever sees.

mod keys;
mod never_up;
mod tls;
