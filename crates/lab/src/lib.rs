//! larder-lab
