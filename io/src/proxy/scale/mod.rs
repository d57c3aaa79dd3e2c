//! How many replicas a pool should have: what is set about it, and what was last advised. What works it out and acts
//! on it is another room, which looks in here.

mod board;
mod settings;

pub use board::{LedSize, ScaleBoard, ScalePoint, ScaleState, ScaleStep};
pub use settings::{
    Actuator, KubernetesScale, ScaleCommand, ScaleKind, ScaleMode, ScaleTarget, ScalingSettings,
};
