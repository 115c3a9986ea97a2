"""What a posterior can be: theta = g(z) + noise, mixtures of such, an exact last layer; its entropy and its bound."""
