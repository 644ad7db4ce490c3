"""Connected clients: producers, consumers, held pulls, queue locks."""
