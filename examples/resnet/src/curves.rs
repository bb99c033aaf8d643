//! Publishes the loss and other numbers of a training as TensorBoard events and as metrics for Prometheus.

use crate::logdir::Events;
use std::time::Duration;

/// Publishes numbers of a training, such as its loss, as curves. The default has no event file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Curves<'a> {
    /// The TensorBoard event file.
    pub events: Option<&'a Events>,
}

impl Curves<'_> {
    /// Adds the value of each point to the curve that the point names, at `step`. The metric of the curve
    /// `train/loss` is the gauge `resnet_train_loss`.
    pub fn scalars(&self, step: u64, points: &[(&str, f64)]) {
        for (tag, value) in points {
            if let Some(events) = self.events {
                events.scalar(tag, step, *value);
            }
            #[cfg(feature = "metrics")]
            metrics::gauge!(format!("resnet_{}", tag.replace('/', "_"))).set(*value);
        }
    }

    /// Counts a training step whose batch has `samples` samples in this process. `waited` is how long the
    /// step waited for the batch.
    pub fn step(&self, samples: u64, waited: Duration) {
        #[cfg(feature = "metrics")]
        {
            metrics::counter!("resnet_steps_total").increment(1);
            metrics::counter!("resnet_samples_total").increment(samples);
            metrics::histogram!("resnet_batch_wait_seconds").record(waited.as_secs_f64());
        }
        #[cfg(not(feature = "metrics"))]
        let _ = (samples, waited);
    }
}

/// Serves the metrics of this process, including the loader's metrics, to Prometheus at
/// `http://ADDRESS/metrics`.
///
/// # Errors
/// Fails if the address is not available, or if the program was built without the feature `metrics`.
pub fn serve_metrics(address: std::net::SocketAddr) -> crate::Result<()> {
    #[cfg(feature = "metrics")]
    {
        let failed = |error: &dyn std::fmt::Display| {
            crate::Error::Usage(format!("cannot serve metrics at {address}: {error}"))
        };
        // The address is tried here first, because the exporter binds it on a thread of its own, and would
        // only log a failure.
        std::net::TcpListener::bind(address).map_err(|error| failed(&error))?;
        let exporter = metrics_exporter_prometheus::PrometheusBuilder::new().with_http_listener(address);
        exporter.install().map_err(|error| failed(&error))?;
        metrics::describe_counter!("resnet_steps_total", "Training steps started since the start");
        metrics::describe_counter!("resnet_samples_total", "Samples of this process that were trained on");
        metrics::describe_histogram!("resnet_batch_wait_seconds", "Wait of a training step for its batch");
        Ok(())
    }
    #[cfg(not(feature = "metrics"))]
    Err(crate::Error::Usage(format!(
        "--metrics {address} needs a program that is built with the feature metrics: \
         cargo build --release -p resnet --features metrics"
    )))
}
