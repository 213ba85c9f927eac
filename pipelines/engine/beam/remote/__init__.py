"""Jobs on engines elsewhere (Flink, Spark, Dataflow, Beam's job service): submission, workers, watch, cancellation."""
