//! The simulator judged from outside: small worlds with known outcomes, queueing theory, and the
//! orderings that others have published.

mod books;
mod elastic;
mod faults;
mod learning;
mod light;
mod orderings;
mod queueing;
mod worlds;
