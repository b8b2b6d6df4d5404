"""Run matrices: data x architectures x methods x repetitions, with a record for each run."""
