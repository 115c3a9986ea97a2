"""What the user has and believes: data, likelihoods, priors."""
