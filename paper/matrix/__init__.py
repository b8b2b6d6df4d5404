"""Run matrices: data x architectures x methods x repetitions, a record each."""
