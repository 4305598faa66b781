"""The pure heart: values and decisions, without trio, redis, SQL, clocks or randomness."""
